//! Medians and percentiles.

/// The value below which that share of the others lies, by nearest rank. Sorts.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank among the samples of one run is far below 2^52, and never negative"
)]
pub(crate) fn percentile(values: &mut [u32], share: f64) -> Option<u32> {
    values.sort_unstable();
    let rank = (share * values.len() as f64).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied()
}

/// The middle one; of an even number the lower of the two in the middle, which is a figure that was really measured.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_nearest_rank() {
        let mut values: Vec<u32> = (1..=100).rev().collect();
        assert_eq!(percentile(&mut values, 0.5), Some(50));
        assert_eq!(percentile(&mut values, 0.99), Some(99));
        assert_eq!(percentile(&mut values, 1.0), Some(100));
        assert_eq!(percentile(&mut [7], 0.99), Some(7));
        assert_eq!(percentile(&mut [], 0.5), None);
    }

    #[test]
    fn the_median_is_a_measured_figure() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.0));
        assert_eq!(median(vec![]), None);
    }
}
