//! Checked reads and writes of little-endian fields. Every decoder goes through these, so a short or hostile buffer is a
//! `None` and never a panic.

pub(crate) fn take<const N: usize>(buf: &[u8], at: usize) -> Option<[u8; N]> {
    buf.get(at..at.checked_add(N)?)?.try_into().ok()
}

pub(crate) fn u16_at(buf: &[u8], at: usize) -> Option<u16> {
    take(buf, at).map(u16::from_le_bytes)
}

pub(crate) fn u32_at(buf: &[u8], at: usize) -> Option<u32> {
    take(buf, at).map(u32::from_le_bytes)
}

pub(crate) fn u64_at(buf: &[u8], at: usize) -> Option<u64> {
    take(buf, at).map(u64::from_le_bytes)
}

pub(crate) fn u128_at(buf: &[u8], at: usize) -> Option<u128> {
    take(buf, at).map(u128::from_le_bytes)
}

/// Writes `value` at `at`. The encoders own their buffers and size them first; a write outside is dropped, which the
/// round-trip tests would show at once.
pub(crate) fn put(buf: &mut [u8], at: usize, value: &[u8]) {
    if let Some(slot) = buf.get_mut(at..at + value.len()) {
        slot.copy_from_slice(value);
    }
}

/// The next multiple of 8.
pub(crate) const fn align8(n: u64) -> u64 {
    n.saturating_add(7) & !7
}

/// CRC-32 of one slice.
pub(crate) fn crc(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32 of a place and a slice, so that right bytes in the wrong place are wrong.
pub(crate) fn crc_at(place: u64, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&place.to_le_bytes());
    hasher.update(bytes);
    hasher.finalize()
}
