//! Pages for the filters that will be loaded next, mapped side by side before the first of them is written.
//!
//! The system makes a huge page at the first touch of a place if a whole one lies in a mapping by then. Filters
//! are smaller, and mapped one by one, with the mapping of a file between, they would lie in small pages until a
//! thread of the system comes by, tens of seconds later. So the job maps those of the next loads together.
//!
//! A reservation is no memory: pages come when they are written, and a load is in the books before. Beside it a
//! huge page holds parts of filters that come next, less than its size; or of such as never come: the
//! reservation that is over goes back as a whole.

use crate::filter::planner::{Choice, shape};
use crate::filter::{FilterPages, FilterShape};
use crate::segment::Segment;

/// Loads that are reserved for at once: a step of the job is bounded.
pub(crate) const LOADS_MAX: usize = 64;

/// Below a huge page's size nothing is won.
const BYTES_MIN: u64 = 2 << 20;

/// A load to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NextLoad {
    /// The part's file.
    pub number: u64,
    /// Its records.
    pub records: u64,
    /// What is loaded.
    pub choice: Choice,
}

impl NextLoad {
    /// That of a part.
    pub fn of(part: &Segment, choice: Choice) -> Self {
        Self {
            number: part.number(),
            records: part.meta().counts.records,
            choice,
        }
    }

    fn shape(&self) -> FilterShape {
        shape(self.records, self.choice)
    }
}

/// Pages of loads to come; none for those that need none.
#[derive(Debug, Default)]
pub(crate) struct ReservedPages(Vec<(NextLoad, Option<FilterPages>)>);

impl ReservedPages {
    /// The pages of the first of the loads to come. Where it has none, all are reserved for anew.
    pub fn take_next<I: Iterator<Item = NextLoad>>(
        &mut self,
        loads: impl Fn() -> I,
    ) -> Option<FilterPages> {
        let first = loads().next()?;
        if let Some(pages) = self.take(first) {
            return pages;
        }
        let loads: Vec<_> = loads().collect();
        self.refill(&loads);
        self.take(first)?
    }

    fn take(&mut self, load: NextLoad) -> Option<Option<FilterPages>> {
        let place = self.0.iter().position(|(other, _)| *other == load)?;
        Some(self.0.swap_remove(place).1)
    }

    /// Reserves for these loads, the first of them first, in place of all before.
    fn refill(&mut self, loads: &[NextLoad]) {
        self.clear();
        let bytes = loads.iter().map(|load| load.shape().resident_bytes());
        let wins = bytes.sum::<u64>() >= BYTES_MIN;
        for load in loads {
            let shape = load.shape();
            let pages = wins.then(|| FilterPages::reserve(&shape)).flatten();
            self.0.push((*load, pages));
        }
    }

    /// Gives all of them back.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(number: u64, records: u64) -> NextLoad {
        NextLoad {
            number,
            records,
            choice: 3,
        }
    }

    #[test]
    fn a_load_takes_its_own_pages_once() {
        let mut reserved = ReservedPages::default();
        let loads: Vec<_> = (0..4).map(|number| load(number, 1 << 20)).collect();
        assert!(reserved.take_next(|| loads.iter().copied()).is_some());
        assert_eq!(reserved.0.len(), 3);
        assert!(reserved.take(load(9, 1 << 20)).is_none(), "another file");
        assert!(reserved.take(load(1, 1 << 19)).is_none(), "another size");
        assert!(reserved.take_next(|| loads[2..].iter().copied()).is_some());
        assert_eq!(reserved.0.len(), 2);
        // One that is made again: all are reserved anew.
        assert!(reserved.take_next(|| loads[1..].iter().copied()).is_some());
        assert!(reserved.take_next(|| loads[1..].iter().copied()).is_some());
        assert_eq!(reserved.0.len(), 2);
        assert!(reserved.take_next(std::iter::empty).is_none());
        reserved.clear();
        assert!(reserved.0.is_empty());
    }

    #[test]
    fn nothing_is_reserved_for_less_than_a_huge_page() {
        let mut reserved = ReservedPages::default();
        let pages =
            |reserved: &ReservedPages| reserved.0.iter().filter(|it| it.1.is_some()).count();
        reserved.refill(&[load(1, 12_500), load(2, 100_000)]);
        assert_eq!((reserved.0.len(), pages(&reserved)), (2, 0));
        // For a small one among large ones the allocator serves.
        reserved.refill(&[load(1, 100), load(2, 4 << 20)]);
        assert_eq!((reserved.0.len(), pages(&reserved)), (2, 1));
    }
}
