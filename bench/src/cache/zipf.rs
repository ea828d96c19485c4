//! Which key is asked for next: a few often, most seldom, as builds do.

/// A small generator (splitmix64): the same seed gives the same run.
#[derive(Debug, Clone)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// Below `bound`, which is not 0. The bias of the remainder is far below what a benchmark can see.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound.max(1)
    }

    /// From 0 to just below 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are all a float holds")]
    fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Zipf's law over ranks: the probability of rank `i` (from 0) is proportional to `1 / (i + 1)^exponent`.
#[derive(Debug)]
pub(crate) struct Zipf {
    cumulative: Vec<f64>,
}

impl Zipf {
    pub(crate) fn new(count: u32, exponent: f64) -> Self {
        let mut sum = 0.0;
        let cumulative = (1..=count.max(1))
            .map(|rank| {
                sum += f64::from(rank).powf(-exponent);
                sum
            })
            .collect();
        Self { cumulative }
    }

    /// A rank from 0.
    pub(crate) fn rank(&self, random: &mut Random) -> u32 {
        let total = self.cumulative.last().copied().unwrap_or(1.0);
        let wanted = random.unit() * total;
        let rank = self.cumulative.partition_point(|&sum| sum <= wanted);
        u32::try_from(rank.min(self.cumulative.len() - 1)).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        let zipf = Zipf::new(1000, 0.99);
        let mut random = Random::new(7);
        let mut seen = vec![0_u32; 1000];
        for _ in 0..200_000 {
            seen[zipf.rank(&mut random) as usize] += 1;
        }
        let total: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [0_u32, 1, 9, 99] {
            let expected = 200_000.0 * f64::from(rank + 1).powf(-0.99) / total;
            let got = f64::from(seen[rank as usize]);
            let near = (got - expected).abs() < 6.0 * expected.sqrt();
            assert!(near, "rank {rank}: {got} of {expected:.0}");
        }
        let all = seen.iter().all(|&count| count > 0);
        assert!(all, "every key is asked for now and then");
    }

    #[test]
    fn the_same_seed_gives_the_same_run() {
        let draw = || {
            let mut random = Random::new(42);
            (0..5).map(|_| random.below(1000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(), draw());
        assert_eq!(Zipf::new(1, 0.99).rank(&mut Random::new(1)), 0);
    }
}
