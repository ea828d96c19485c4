//! Obtains tools and prints their paths: `cargo run -p russet-parts --example ensure -- etcd kube-apiserver`. Without arguments, lists.

#![expect(clippy::print_stdout, reason = "a command line program")]

use std::process::ExitCode;

use russet_parts::{Bars, Manifest, Options, Store};

#[tokio::main]
async fn main() -> ExitCode {
    let store = Store::new(Manifest::embedded(), Options::from_env());
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    if wanted.is_empty() {
        for status in store.list() {
            println!("{:26} {:14} {:?}", status.tool, status.wanted, status.state);
        }
        return ExitCode::SUCCESS;
    }
    let names: Vec<&str> = wanted.iter().map(String::as_str).collect();
    match store.ensure(&names, &Bars::stderr()).await {
        Ok(tools) => {
            for (name, located) in tools.iter() {
                println!("{name} {} ({})", located.path.display(), located.origin);
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
