//! Properties of plans, and how far they are from the best.

use super::*;
use proptest::prelude::*;

const YOUNG: u8 = 1 << 3 | 1 << 4;
const OLD: u8 = 1 << 1 | 1 << 2 | 1 << 3;

fn unit(records: u64, weight: u64, stored: u8) -> Unit {
    Unit {
        records,
        weight,
        stored,
        ..Unit::default()
    }
}

fn units(most: usize) -> impl Strategy<Value = Vec<Unit>> {
    let records = prop_oneof![0u64..200, 1_000u64..20_000, 50_000u64..4_000_000];
    let stored = prop_oneof![Just(YOUNG), Just(OLD), 0u8..32];
    let one = (records, 0u64..5_000, stored).prop_map(|(r, w, s)| unit(r, w, s & !1));
    proptest::collection::vec(one, 0..most)
}

/// Budgets from nothing to more than all takes.
fn budget(units: &[Unit], thousandths: u64) -> u64 {
    let all: u64 = units.iter().map(|unit| unit.bytes(4)).sum();
    all * thousandths / 1_000
}

fn kept(units: &[Unit], plan: &[Choice]) -> Vec<Unit> {
    let each = units.iter().zip(plan);
    each.map(|(unit, choice)| Unit {
        resident: *choice,
        ..*unit
    })
    .collect()
}

/// The best plan, by trying all.
fn best(units: &[Unit], budget_bytes: u64) -> u128 {
    let Some((first, rest)) = units.split_first() else {
        return 0;
    };
    let fitting = (0..=4).filter(|c| (*c == 0 || first.has(*c)) && first.bytes(*c) <= budget_bytes);
    let costs = fitting.map(|choice| {
        u128::from(first.cost(choice)) + best(rest, budget_bytes - first.bytes(choice))
    });
    costs.min().unwrap_or(0)
}

proptest! {
    #[test]
    fn the_budget_holds_and_only_what_is_stored_is_chosen(
        units in units(60), share in 0u64..1_100, before in 0u64..1_100,
    ) {
        let bytes_max = budget(&units, share);
        let units = kept(&units, &planned(&units, budget(&units, before)));
        for policy in [
            FilterPolicy::Planned,
            FilterPolicy::NewestFirst,
            FilterPolicy::WindowOnly,
            FilterPolicy::All,
            FilterPolicy::None,
        ] {
            let plan = plan(policy, &units, bytes_max);
            prop_assert_eq!(plan.len(), units.len());
            prop_assert!(bytes(&units, &plan) <= bytes_max, "{:?}", policy);
            for (unit, choice) in units.iter().zip(&plan) {
                prop_assert!(*choice == 0 || unit.has(*choice));
            }
        }
    }

    #[test]
    fn a_plan_is_no_worse_than_newest_first(units in units(60), share in 0u64..1_100) {
        let bytes_max = budget(&units, share);
        let simple = newest_first(&units, bytes_max, u32::MAX);
        prop_assert!(cost(&units, &planned(&units, bytes_max)) <= cost(&units, &simple));
    }

    /// What the best plan spares beyond ours is less than the one step that found no room.
    #[test]
    fn a_plan_is_at_most_a_step_from_the_best(units in units(6), share in 0u64..1_100) {
        let bytes_max = budget(&units, share);
        let own = cost(&units, &planned(&units, bytes_max));
        let step = units.iter().map(|unit| unit.cost(0)).max().unwrap_or(0);
        let best = best(&units, bytes_max);
        prop_assert!(best <= own && own <= best + u128::from(step), "{} {}", own, best);
    }

    /// A plan made again, with what it wants resident, is the same one, but for what is still loaded beside;
    /// when weights have moved it drops something only if that spares a sixteenth.
    #[test]
    fn a_plan_stands_while_little_changes(
        units in units(40), share in 0u64..1_100, moves in proptest::collection::vec(0u64..3, 40),
    ) {
        let bytes_max = budget(&units, share);
        let first = planned(&units, bytes_max);
        let mut later = kept(&units, &first);
        for (unit, way) in later.iter_mut().zip(moves) {
            unit.weight = unit.weight * 10 / (9 + way);
        }
        let second = planned(&later, bytes_max);
        let drops = first.iter().zip(&second).any(|(before, after)| before > after);
        let (before, after) = (cost(&later, &first), cost(&later, &second));
        prop_assert!(after <= before);
        prop_assert!(!drops || after * 16 < before * 15, "{} to {}", before, after);
    }
}

/// How often plans drop something when every weight moves by up to a tenth.
#[test]
fn plans_seldom_drop_for_a_tenth() {
    let (mut drops, mut plans) = (0, 0);
    for seed in 0..400 {
        let mut draw = draws(seed);
        let units = folded_units(&mut draw, 20);
        let bytes_max = budget(&units, 50 + draw(800));
        let first = planned(&units, bytes_max);
        let mut later = kept(&units, &first);
        for unit in &mut later {
            unit.weight = unit.weight * 10 / (9 + draw(3));
        }
        let second = planned(&later, bytes_max);
        drops += u32::from(
            first
                .iter()
                .zip(&second)
                .any(|(before, after)| before > after),
        );
        plans += 1;
    }
    println!("{drops} of {plans} plans dropped something");
    assert!(drops * 50 <= plans, "{drops} of {plans}");
}

/// A source of numbers below a bound.
fn draws(seed: u64) -> impl FnMut(u64) -> u64 {
    let mut state = seed;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    }
}

/// Parts as large as those of segments of 12,500 records and their folds.
fn folded_units(draw: &mut impl FnMut(u64) -> u64, count: usize) -> Vec<Unit> {
    let mut one = || {
        let (level, weight) = (draw(4), 50 + draw(100));
        let records = 12_500 << (3 * level);
        match level {
            0..2 => unit(records, weight, YOUNG),
            _ => unit(records * 2 / 3, weight, OLD),
        }
    };
    (0..count).map(|_| one()).collect()
}

/// How far plans are from the best on average, where parts are as large as those of folded runs.
#[test]
fn plans_are_close_to_the_best() {
    let (mut own, mut most) = (0.0, 0.0);
    let mut worst: f64 = 1.0;
    for seed in 0..300 {
        let mut draw = draws(seed);
        let units = folded_units(&mut draw, 7);
        let bytes_max = budget(&units, 50 + draw(800));
        let plan = planned(&units, bytes_max);
        let (cost, best) = (cost(&units, &plan), best(&units, bytes_max));
        own += cost as f64;
        most += best as f64;
        worst = worst.max(cost as f64 / best.max(1) as f64);
    }
    let ratio = own / most;
    println!("plans cost {ratio:.3} of the best, one of them {worst:.3}");
    assert!(ratio <= 1.10, "{ratio}");
}

/// A part's weight is what decides between equals; the newest where nothing does.
#[test]
fn who_is_asked_more_gets_more() {
    let mut units = vec![unit(10_000, 100, YOUNG); 4];
    let bytes_max = units[0].bytes(3) * 2;
    assert_eq!(planned(&units, bytes_max), [3, 3, 0, 0]);
    units[3].weight = 200;
    assert_eq!(planned(&units, bytes_max), [3, 0, 0, 3]);
}

/// Twelve bits are exchanged for sixteen only once the lookups pay the reads.
#[test]
fn an_exchange_has_to_pay() {
    let mut one = [Unit {
        resident: 3,
        ..unit(12_500, 1_000, YOUNG)
    }];
    // Two reads and two pieces; 3,313 of a million lookups are spared.
    for (arrivals, choice) in [(0, 3), (1_207, 3), (1_208, 4)] {
        one[0].arrivals = arrivals;
        assert_eq!(planned(&one, u64::MAX), [choice]);
    }
    one[0].resident = 0;
    assert_eq!(planned(&one, u64::MAX), [4]);
}

#[test]
fn what_is_not_stored_has_a_substitute() {
    for (stored, choice) in [
        (1 << 3 | 1 << 4, 3),
        (1 << 2 | 1 << 4, 2),
        (1 << 4, 4),
        (0, 0),
    ] {
        assert_eq!(fixed(&unit(100, 1, stored)), choice);
        let all = plan(FilterPolicy::All, &[unit(100, 1, stored)], u64::MAX);
        assert_eq!(all, [choice]);
    }
}

#[test]
fn the_window_ends_by_segments() {
    let mut units = vec![unit(1_000, 1, YOUNG); 3];
    units[1].newer_segments = super::super::WINDOW_SEGMENTS - 1;
    units[2].newer_segments = super::super::WINDOW_SEGMENTS;
    assert_eq!(plan(FilterPolicy::WindowOnly, &units, u64::MAX), [3, 3, 0]);
    assert_eq!(plan(FilterPolicy::None, &units, u64::MAX), [0, 0, 0]);
}

/// All that fits is all; what does not goes by the plan.
#[test]
fn all_is_all_while_it_fits() {
    let units = [unit(12_500, 1, YOUNG), unit(400_000, 1, OLD)];
    let all = units.iter().map(|unit| unit.bytes(3)).sum::<u64>();
    assert_eq!(plan(FilterPolicy::All, &units, all), [3, 3]);
    assert_eq!(plan(FilterPolicy::All, &units, all - 1), [4, 2]);
}
