//! `docs/conformance.md` lists the checks there are, and no others.

use std::collections::BTreeSet;

use russet_conformance::{http, reapi};

#[test]
fn the_document_has_a_row_for_every_check() {
    let text = include_str!("../../../docs/conformance.md");
    let rows: BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next())
        .collect();
    let checks: BTreeSet<&str> = http::all()
        .map(|check| check.name)
        .chain(reapi::all().map(|check| check.name))
        .collect();
    assert_eq!(
        rows.symmetric_difference(&checks).collect::<Vec<_>>(),
        Vec::<&&str>::new(),
        "print the document again with `conformance document`"
    );
}
