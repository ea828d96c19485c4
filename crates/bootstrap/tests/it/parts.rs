//! Programs that only the tests need.

use std::path::PathBuf;

use russet_parts::{Bars, Manifest, Modules, Options, Store};

/// A program of `parts.toml`, obtained on first use.
pub(crate) async fn program(name: &str) -> PathBuf {
    let manifest = Manifest::parse(include_str!("parts.toml"), Modules::default()).unwrap();
    let store = Store::new(manifest, Options::from_env());
    let tools = store.ensure(&[name], &Bars::lines()).await;
    tools
        .unwrap_or_else(|error| panic!("{name} can be obtained: {error}"))
        .path(name)
        .unwrap()
        .to_owned()
}
