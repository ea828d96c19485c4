//! Footer: trailer, then table. Checksums are repaired first, so that the decoder behind them is reached.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_segstore::format::{FooterTrailer, Table};

fn crc(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 == 1 {
            (crc >> 1) ^ 0xedb8_8320
        } else {
            crc >> 1
        }
    };
    !bytes
        .iter()
        .fold(u32::MAX, |crc, &b| (0..8).fold(crc ^ u32::from(b), step))
}

fuzz_target!(|data: &[u8]| {
    let len = data.len() as u64;
    if data.len() < 96 {
        return;
    }
    let (table, end) = data.split_at(data.len() - 96);
    let _ = FooterTrailer::decode(end, len);
    let mut end = end.to_vec();
    end[..8].copy_from_slice(b"RUSSTEND");
    end[32..40].copy_from_slice(&0_u64.to_le_bytes());
    end[80..88].copy_from_slice(&len.to_le_bytes());
    let sum = crc(table);
    end[88..92].copy_from_slice(&sum.to_le_bytes());
    let sum = crc(&end[..92]);
    end[92..].copy_from_slice(&sum.to_le_bytes());
    let Some(trailer) = FooterTrailer::decode(&end, len) else {
        return;
    };
    if let Some(mut table) = Table::decode(table, &trailer) {
        let again = table.encode(trailer.id, trailer.tag, trailer.flags, 0, trailer.history_floor);
        let trailer = FooterTrailer::decode(&again[again.len() - 96..], again.len() as u64).unwrap();
        let decoded = Table::decode(&again[..again.len() - 96], &trailer);
        // Records may end beyond a footer at 0; then the copy is rightly refused.
        assert!(decoded.is_none_or(|d| d.entries == table.entries));
    }
});
