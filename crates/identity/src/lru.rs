//! A bounded map that forgets what was not used for longest.
//!
//! An index-linked list over a slab: no allocation and no `unsafe` on the way of a hit. Indices are `u32`, since a bound
//! beyond four billion entries is not a bound.

use std::collections::HashMap;
use std::hash::Hash;

const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Node<K, V> {
    key: K,
    value: Option<V>,
    newer: u32,
    older: u32,
}

/// At most `capacity` entries. Invariants: `map.len() + free.len() == nodes.len() <= capacity`; a node is in the list if
/// and only if its `value` is some.
#[derive(Debug)]
pub(crate) struct Lru<K, V> {
    map: HashMap<K, u32>,
    nodes: Vec<Node<K, V>>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    capacity: usize,
}

impl<K: Hash + Eq + Copy, V> Lru<K, V> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            map: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity: capacity.clamp(1, NONE as usize - 1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.map.len()
    }

    /// The value, which becomes the newest.
    pub(crate) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        let at = *self.map.get(key)?;
        if at != self.newest {
            self.unlink(at);
            self.link_newest(at);
        }
        self.nodes.get_mut(at as usize)?.value.as_mut()
    }

    /// Adds or replaces; returns what had to go for it.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        if let Some(held) = self.get_mut(&key) {
            return Some(std::mem::replace(held, value));
        }
        let evicted = if self.map.len() >= self.capacity {
            self.nodes
                .get(self.oldest as usize)
                .map(|node| node.key)
                .and_then(|key| self.remove(&key))
        } else {
            None
        };
        let node = Node {
            key,
            value: Some(value),
            newer: NONE,
            older: NONE,
        };
        let at = if let Some(at) = self.free.pop() {
            if let Some(slot) = self.nodes.get_mut(at as usize) {
                *slot = node;
            }
            at
        } else {
            // Bounded by `capacity`, which fits.
            let at = u32::try_from(self.nodes.len()).unwrap_or(NONE);
            self.nodes.push(node);
            at
        };
        self.map.insert(key, at);
        self.link_newest(at);
        evicted
    }

    pub(crate) fn remove(&mut self, key: &K) -> Option<V> {
        let at = self.map.remove(key)?;
        self.unlink(at);
        self.free.push(at);
        self.nodes.get_mut(at as usize)?.value.take()
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::new(self.capacity);
    }

    fn unlink(&mut self, at: u32) {
        let Some((newer, older)) = self.nodes.get(at as usize).map(|n| (n.newer, n.older)) else {
            return;
        };
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
        }
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
    }

    fn link_newest(&mut self, at: u32) {
        let second = self.newest;
        if let Some(node) = self.nodes.get_mut(at as usize) {
            node.newer = NONE;
            node.older = second;
        }
        match self.nodes.get_mut(second as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_entry_not_used_for_longest_goes_first() {
        let mut lru = Lru::new(2);
        assert_eq!(lru.insert(1, "a"), None);
        assert_eq!(lru.insert(2, "b"), None);
        assert_eq!(lru.get_mut(&1), Some(&mut "a"));
        assert_eq!(lru.insert(3, "c"), Some("b"));
        assert_eq!(lru.get_mut(&2), None);
        assert_eq!(lru.len(), 2);
    }

    proptest! {
        /// Against the plainest model there is: a vector in order of use.
        #[test]
        fn it_behaves_like_a_list_in_order_of_use(
            capacity in 1_usize..6,
            steps in prop::collection::vec((0_u8..3, 0_u8..10), 0..200),
        ) {
            let mut lru = Lru::new(capacity);
            let mut model: Vec<(u8, usize)> = Vec::new();
            for (step, (operation, key)) in steps.into_iter().enumerate() {
                let held = model.iter().position(|(k, _)| *k == key);
                match operation {
                    0 => {
                        let expected = match held {
                            Some(at) => Some(model.remove(at).1),
                            None if model.len() == capacity => Some(model.remove(0).1),
                            None => None,
                        };
                        model.push((key, step));
                        prop_assert_eq!(lru.insert(key, step), expected);
                    }
                    1 => {
                        let expected = held.map(|at| {
                            let entry = model.remove(at);
                            model.push(entry);
                            entry.1
                        });
                        prop_assert_eq!(lru.get_mut(&key).copied(), expected);
                    }
                    _ => prop_assert_eq!(lru.remove(&key), held.map(|at| model.remove(at).1)),
                }
                prop_assert_eq!(lru.len(), model.len());
                prop_assert!(lru.nodes.len() <= capacity);
            }
        }
    }
}
