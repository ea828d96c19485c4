//! Answers that stay good for a while. The clock is an argument.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Cache<K, V> {
    /// Held for a look or an insertion, never across a wait.
    kept: Mutex<HashMap<K, (V, Instant)>>,
    most: usize,
}

impl<K: Eq + Hash + Clone, V: Clone> Cache<K, V> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            kept: Mutex::default(),
            most,
        }
    }

    pub(super) fn get(&self, key: &K, now: Instant) -> Option<V> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let (value, until) = kept.get(key)?;
        (now < *until).then(|| value.clone())
    }

    pub(super) fn put(&self, key: K, value: V, now: Instant, good_for: Duration) {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= self.most && !kept.contains_key(&key) {
            kept.retain(|_, (_, until)| now < *until);
            let soonest = kept
                .iter()
                .min_by_key(|(_, (_, until))| *until)
                .map(|(key, _)| key.clone());
            if let Some(soonest) = soonest.filter(|_| kept.len() >= self.most) {
                kept.remove(&soonest);
            }
        }
        kept.insert(key, (value, now + good_for));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_expire_and_their_number_is_bounded() {
        let cache = Cache::new(2);
        let now = Instant::now();
        let second = Duration::from_secs(1);
        cache.put("a", 1, now, second);
        cache.put("b", 2, now, 3 * second);
        assert_eq!(cache.get(&"a", now), Some(1));
        assert_eq!(cache.get(&"a", now + second), None);
        cache.put("c", 3, now, 2 * second);
        assert_eq!(cache.get(&"a", now), None, "the one that would go first made room");
        assert_eq!((cache.get(&"b", now), cache.get(&"c", now)), (Some(2), Some(3)));
    }
}
