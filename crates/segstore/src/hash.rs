//! SipHash-2-4 with 128-bit output: the keyed fingerprint of an entry. Keyed, so that a client cannot construct two keys
//! that collide; 128 bits, so that chance does not either. Readers compare the full key all the same.

/// The fingerprint of `(kind, namespace, key)` under one store's hash key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fingerprint(pub(crate) u128);

impl std::fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

struct Sip {
    v0: u64,
    v1: u64,
    v2: u64,
    v3: u64,
}

impl Sip {
    fn new(k0: u64, k1: u64) -> Self {
        Self {
            v0: k0 ^ 0x736f_6d65_7073_6575,
            v1: k1 ^ 0x646f_7261_6e64_6f6d ^ 0xee,
            v2: k0 ^ 0x6c79_6765_6e65_7261,
            v3: k1 ^ 0x7465_6462_7974_6573,
        }
    }

    fn round(&mut self) {
        self.v0 = self.v0.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(13) ^ self.v0;
        self.v0 = self.v0.rotate_left(32);
        self.v2 = self.v2.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(16) ^ self.v2;
        self.v0 = self.v0.wrapping_add(self.v3);
        self.v3 = self.v3.rotate_left(21) ^ self.v0;
        self.v2 = self.v2.wrapping_add(self.v1);
        self.v1 = self.v1.rotate_left(17) ^ self.v2;
        self.v2 = self.v2.rotate_left(32);
    }

    fn word(&mut self, m: u64) {
        self.v3 ^= m;
        self.round();
        self.round();
        self.v0 ^= m;
    }

    fn finish(mut self) -> u128 {
        self.v2 ^= 0xee;
        for _ in 0..4 {
            self.round();
        }
        let low = self.v0 ^ self.v1 ^ self.v2 ^ self.v3;
        self.v1 ^= 0xdd;
        for _ in 0..4 {
            self.round();
        }
        let high = self.v0 ^ self.v1 ^ self.v2 ^ self.v3;
        u128::from(low) | (u128::from(high) << 64)
    }
}

/// SipHash-2-4-128 of the concatenation of `parts`, least significant byte first.
pub(crate) fn siphash128(key: u128, parts: &[&[u8]]) -> u128 {
    #[expect(clippy::cast_possible_truncation, reason = "splitting a u128 into its halves")]
    let mut sip = Sip::new(key as u64, (key >> 64) as u64);
    let (mut pending, mut filled, mut total) = (0_u64, 0_u32, 0_u64);
    for part in parts {
        total = total.wrapping_add(part.len() as u64);
        let mut rest: &[u8] = part;
        while filled != 0 {
            let Some((&byte, tail)) = rest.split_first() else { break };
            pending |= u64::from(byte) << (8 * filled);
            filled += 1;
            rest = tail;
            if filled == 8 {
                sip.word(pending);
                (pending, filled) = (0, 0);
            }
        }
        let mut words = rest.chunks_exact(8);
        for word in &mut words {
            sip.word(u64::from_le_bytes(word.try_into().unwrap_or_default()));
        }
        for &byte in words.remainder() {
            pending |= u64::from(byte) << (8 * filled);
            filled += 1;
        }
    }
    sip.word(pending | (total << 56));
    sip.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u128 = 0x0f0e_0d0c_0b0a_0908_0706_0504_0302_0100;

    #[test]
    fn agrees_with_the_reference_vectors() {
        let hex = |n: u128| n.to_le_bytes().map(|b| format!("{b:02x}")).concat();
        assert_eq!(hex(siphash128(KEY, &[])), "a3817f04ba25a8e66df67214c7550293");
        assert_eq!(hex(siphash128(KEY, &[&[0]])), "da87c1d86b99af44347659119b22fc45");
        assert_eq!(hex(siphash128(KEY, &[&[0, 1]])), "8177228da4a45dc7fca38bdef60affe4");
    }

    #[test]
    fn does_not_depend_on_how_the_input_is_cut() {
        let data: Vec<u8> = (0..100).collect();
        let whole = siphash128(KEY, &[&data]);
        for cut in 0..=data.len() {
            let (a, b) = data.split_at(cut);
            assert_eq!(siphash128(KEY, &[a, b]), whole, "cut at {cut}");
            assert_eq!(siphash128(KEY, &[a, &[], b]), whole, "cut at {cut}");
        }
    }
}
