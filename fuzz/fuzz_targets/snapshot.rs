//! The action-cache snapshot: a body that is read says the same when it is built again, and an envelope gives back what was put in,
//! or nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use russet_reapi::snapshot::{Builder, MAX_WIRE, Node, Snapshot, body_of, envelope};

/// Every action with the outputs it names.
fn actions(snapshot: &Snapshot) -> Vec<([u8; 32], Vec<Node>)> {
    let node = |number: &u32| snapshot.nodes[*number as usize].clone();
    snapshot
        .keys
        .iter()
        .map(|(action, numbers)| (*action, numbers.iter().map(node).collect()))
        .collect()
}

fn check_body(body: &[u8]) {
    let Ok(snapshot) = Snapshot::read(body) else {
        return;
    };
    assert!(snapshot.nodes.len() + snapshot.keys.len() <= body.len());
    let said = actions(&snapshot);
    let mut builder = Builder::default();
    for (action, nodes) in &said {
        assert!(builder.push(action, nodes), "what was read does not fit");
    }
    let built = builder.body(snapshot.watermark);
    assert!(built.len() <= body.len(), "a node was written twice");
    let again = Snapshot::read(&built).expect("what was built is read");
    assert_eq!(again.watermark, snapshot.watermark);
    assert_eq!(actions(&again), said);
    // Cut or longer, it is no snapshot.
    assert!(Snapshot::read(&body[..body.len() - 1]).is_err());
    assert!(Snapshot::read(&[body, &[0]].concat()).is_err());
}

fuzz_target!(|data: &[u8]| {
    check_body(data);
    check_body(&[b"TSNP\x02", data].concat());
    for wrapped in [data.to_vec(), [b"TSNZ\x01", data].concat()] {
        if let Ok(body) = body_of(&wrapped) {
            assert!(body.len() <= MAX_WIRE);
            assert_eq!(wrapped[5..13], (body.len() as u64).to_le_bytes());
            check_body(&body);
        }
    }
    let wrapped = envelope(data).expect("memory to compress in");
    assert_eq!(body_of(&wrapped).as_deref(), Ok(data));
});
