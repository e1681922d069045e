//! The bytes of a file, in pages that versions share.
//!
//! ```text
//! Content { length, nodes } -> node (32 pages) -> page (1,024 bytes)
//! ```
//! A missing node or page is zeros. Cloning copies one pointer; a write copies the pages it touches
//! and the short path above them, so that the durable and the live version of a file, and thousands
//! of saved states, share what is equal.
//!
//! Invariant: every stored byte at or past `length` is zero. So growing exposes zeros.

use std::sync::Arc;

/// Small, because simulated files are small and every first write after a sync copies a page.
const PAGE_BYTES: usize = 1024;
/// Bounds the pointers copied per write: one node and the list of nodes.
const NODE_PAGES: usize = 32;
const NODE_BYTES: u64 = (PAGE_BYTES * NODE_PAGES) as u64;

type Page = [u8; PAGE_BYTES];

#[derive(Clone, Default)]
struct Node {
    pages: [Option<Arc<Page>>; NODE_PAGES],
}

/// A version of a file's bytes.
#[derive(Clone, Default)]
pub struct Content {
    length: u64,
    nodes: Arc<Vec<Option<Arc<Node>>>>,
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({} bytes)", self.length)
    }
}

/// The pieces of `[offset, offset + length)` that lie in one page each: node, page, range in the page.
fn pieces(
    offset: u64,
    length: usize,
) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut at = offset;
    let end = offset + length as u64;
    std::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let node = (at / NODE_BYTES) as usize;
        let inside = (at % NODE_BYTES) as usize;
        let start = inside % PAGE_BYTES;
        let count = (PAGE_BYTES - start).min((end - at) as usize);
        at += count as u64;
        Some((node, inside / PAGE_BYTES, start..start + count))
    })
}

impl Content {
    /// The length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether there is no byte.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Whether both are one and the same version (equal bytes may still say no).
    pub fn same_version(&self, other: &Self) -> bool {
        self.length == other.length && Arc::ptr_eq(&self.nodes, &other.nodes)
    }

    /// Copies bytes from `offset` on into `buffer`; returns how many there were.
    pub fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let count = (self.length.saturating_sub(offset)).min(buffer.len() as u64) as usize;
        let mut done = 0;
        for (node, page, range) in pieces(offset, count) {
            let target = &mut buffer[done..done + range.len()];
            done += range.len();
            match self.page(node, page) {
                Some(bytes) => target.copy_from_slice(&bytes[range]),
                None => target.fill(0),
            }
        }
        count
    }

    /// All bytes in one piece.
    pub fn flat(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.length as usize];
        self.read(&mut bytes, 0);
        bytes
    }

    /// Stores `bytes` at `offset`, growing the file.
    pub fn write(&mut self, bytes: &[u8], offset: u64) {
        if bytes.is_empty() {
            return;
        }
        let mut done = 0;
        for (node, page, range) in pieces(offset, bytes.len()) {
            let source = &bytes[done..done + range.len()];
            done += range.len();
            self.page_mut(node, page)[range].copy_from_slice(source);
        }
        self.length = self.length.max(offset + bytes.len() as u64);
    }

    /// Cuts the file, or grows it with zeros.
    pub fn set_len(&mut self, length: u64) {
        if length < self.length {
            self.zero_from(length);
        }
        self.length = length;
    }

    /// Changes the bits of one byte; nothing happens past the end.
    pub fn flip(&mut self, offset: u64, mask: u8) {
        if offset < self.length {
            let (node, inside) = (offset / NODE_BYTES, (offset % NODE_BYTES) as usize);
            self.page_mut(node as usize, inside / PAGE_BYTES)[inside % PAGE_BYTES] ^= mask;
        }
    }

    /// Takes over `other`'s bytes in `[offset, offset + length)` as far as `other` has them; grows
    /// the file to hold them.
    pub fn copy_from(&mut self, other: &Self, offset: u64, length: u64) {
        let end = other.length.min(offset + length);
        if offset >= end {
            return;
        }
        let mut buffer = vec![0; (end - offset) as usize];
        other.read(&mut buffer, offset);
        self.write(&buffer, offset);
    }

    fn zero_from(&mut self, length: u64) {
        let nodes = Arc::make_mut(&mut self.nodes);
        nodes.truncate(length.div_ceil(NODE_BYTES) as usize);
        let inside = (length % NODE_BYTES) as usize;
        if inside == 0 || length / NODE_BYTES >= nodes.len() as u64 {
            return;
        }
        let Some(node) = &mut nodes[(length / NODE_BYTES) as usize] else {
            return;
        };
        let node = Arc::make_mut(node);
        let kept = inside.div_ceil(PAGE_BYTES);
        node.pages[kept..].fill(None);
        if !inside.is_multiple_of(PAGE_BYTES)
            && let Some(page) = &mut node.pages[kept - 1]
        {
            Arc::make_mut(page)[inside % PAGE_BYTES..].fill(0);
        }
    }

    fn page(&self, node: usize, page: usize) -> Option<&Page> {
        self.nodes.get(node)?.as_ref()?.pages[page].as_deref()
    }

    fn page_mut(&mut self, node: usize, page: usize) -> &mut Page {
        let nodes = Arc::make_mut(&mut self.nodes);
        if nodes.len() <= node {
            nodes.resize(node + 1, None);
        }
        let node = Arc::make_mut(nodes[node].get_or_insert_default());
        Arc::make_mut(node.pages[page].get_or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::choices::SmallRandom;

    #[test]
    fn behaves_like_a_vector_of_bytes() {
        let mut random = SmallRandom::new(1);
        for _ in 0..30 {
            let mut content = Content::default();
            let mut plain: Vec<u8> = Vec::new();
            for _ in 0..60 {
                let saved = (content.clone(), plain.clone());
                let offset = random.below(100_000) as usize;
                match random.below(4) {
                    0 => {
                        content.set_len(offset as u64);
                        plain.resize(offset, 0);
                    }
                    1 => {
                        content.flip(offset as u64, 4);
                        if let Some(byte) = plain.get_mut(offset) {
                            *byte ^= 4;
                        }
                    }
                    _ => {
                        let bytes = vec![random.below(255) as u8; random.below(3000) as usize + 1];
                        content.write(&bytes, offset as u64);
                        plain.resize(plain.len().max(offset + bytes.len()), 0);
                        plain[offset..offset + bytes.len()].copy_from_slice(&bytes);
                    }
                }
                assert_eq!(content.flat(), plain);
                assert_eq!(saved.0.flat(), saved.1, "a saved version changed");
            }
        }
    }
}
