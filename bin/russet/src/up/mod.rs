//! `russet up`: a cluster of real parts, our CRDs and Cluster API core, kept alive until Ctrl-C.
//!
//! ```text
//! local     lock ─► admit old state ─► parts ─► control plane ─┬─► CRD chart (helm) ─► Established ─┬─► table ─► supervise
//!                                                              ├─► Cluster API core ────────────────┤
//!                                                              ├─► emulated Scaleway, minis ────────┤
//!                                                              └─► cache node (kura) ───────────────┘
//!           ... ─► provider chart (helm) ─► provider ─► every Mac and cache node serves ─► table
//! detach    parts (here, with bars) ─► the same as a background process ─► watch its status.json until ready
//! existing  lock ─► reach it ─► CRD chart (helm) ─► Established ─► say whether Cluster API core is there
//! ```

pub mod chart;
pub mod disk;
pub mod news;
pub mod summary;

mod board;
pub(crate) mod cache;
mod detach;
mod existing;
pub(crate) mod fleet;
pub(crate) mod linux;
mod local;
mod macs;
mod ports;
mod tether;
mod view;

use crate::cli;
use crate::config::Surroundings;
use crate::exit::Exit;
use crate::state::lock::{Holder, Lock};
use crate::state::record::{self, Record};
use crate::state::{Layout, home};
use crate::version;
use anyhow::{Result, bail};
use russet_parts::Manifest;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

pub async fn up(args: &cli::Up, verbose: u8, surroundings: &Surroundings) -> Result<Exit> {
    let layout = Layout::new(&surroundings.working_dir, &args.dir.dir);
    let parts_dir: Vec<PathBuf> = args
        .parts_dir
        .iter()
        .map(|dir| surroundings.working_dir.join(dir))
        .collect();
    match &args.kubeconfig {
        Some(kubeconfig) => {
            let kubeconfig = surroundings.working_dir.join(kubeconfig);
            existing::up(args, &layout, &parts_dir, &kubeconfig, surroundings).await
        }
        None if args.detach => detach::up(args, verbose, &layout, &parts_dir, surroundings).await,
        None => local::up(args, &layout, &parts_dir, surroundings).await,
    }
}

/// The state directory, made and locked.
fn open(layout: &Layout) -> Result<Lock> {
    home::prepare(layout)?;
    Ok(Lock::acquire(&layout.lock(), &Holder::this("up"))?)
}

/// The directory to name in the commands that are suggested: none when the default one is meant.
fn named_dir(layout: &Layout, surroundings: &Surroundings) -> Option<PathBuf> {
    let default = Layout::new(&surroundings.working_dir, Path::new(cli::DEFAULT_DIR));
    (*layout != default).then(|| layout.root().to_owned())
}

/// Which kind of cluster a state directory is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Local,
    Existing,
}

/// Old state that may be used, and what to say about it.
#[derive(Debug)]
struct Admitted {
    record: Record,
    remarks: Vec<String>,
}

/// Decides whether what an earlier run left can be used now.
fn admit(layout: &Layout, manifest: &Manifest, kind: Kind) -> Result<Admitted> {
    let versions = version::of_data(manifest);
    let mut remarks = Vec::new();
    let (charts, existing) = match record::read(layout)? {
        record::Found::Nothing => (BTreeMap::new(), None),
        record::Found::Corrupt(why) => {
            remarks.push(format!(
                "{} was damaged ({why}) and has been rebuilt",
                layout.record().display()
            ));
            (BTreeMap::new(), None)
        }
        record::Found::Record(old) => {
            for upgrade in record::compare(layout, &old, &versions)? {
                remarks.push(format!("{} goes from {} to {}", upgrade.part, upgrade.from, upgrade.to));
            }
            (old.charts, old.existing)
        }
    };
    let shown = layout.root().display();
    match (kind, &existing) {
        (Kind::Local, Some(existing)) => bail!(
            "{shown} belongs to the existing cluster of {}; use another --dir for a cluster of your own, or forget it with \
             `russet down`",
            existing.kubeconfig.display()
        ),
        (Kind::Existing, None) if layout.cluster().exists() => {
            bail!("{shown} holds a cluster that russet started itself; use another --dir for an existing one")
        }
        _ => {}
    }
    let parts = if kind == Kind::Local { versions } else { BTreeMap::new() };
    let russet = env!("CARGO_PKG_VERSION").to_owned();
    Ok(Admitted {
        record: Record {
            schema: record::SCHEMA,
            russet,
            parts,
            charts,
            existing,
        },
        remarks,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fresh() -> (tempfile::TempDir, Layout) {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path(), Path::new(".russet"));
        home::prepare(&layout).unwrap();
        (dir, layout)
    }

    #[test]
    fn a_fresh_directory_is_admitted_without_a_word() {
        let (_dir, layout) = fresh();
        let admitted = admit(&layout, &Manifest::embedded(), Kind::Local).unwrap();
        assert_eq!(admitted.remarks, [""; 0]);
        assert_eq!(admitted.record.parts, version::of_data(&Manifest::embedded()));
    }

    #[test]
    fn a_damaged_record_is_rebuilt_and_said() {
        let (_dir, layout) = fresh();
        std::fs::write(layout.record(), "{\"schema\":").unwrap();
        let admitted = admit(&layout, &Manifest::embedded(), Kind::Local).unwrap();
        assert!(admitted.remarks.first().unwrap().contains("damaged"));
    }

    #[test]
    fn the_charts_of_an_earlier_run_are_remembered() {
        let (_dir, layout) = fresh();
        let mut record = admit(&layout, &Manifest::embedded(), Kind::Local).unwrap().record;
        record.charts.insert("russet-crds".into(), "abc".into());
        record::write(&layout, &record).unwrap();
        let admitted = admit(&layout, &Manifest::embedded(), Kind::Local).unwrap().record;
        assert_eq!(admitted, record);
    }

    #[test]
    fn a_directory_is_for_one_kind_of_cluster() {
        let (_dir, layout) = fresh();
        let mut record = admit(&layout, &Manifest::embedded(), Kind::Existing).unwrap().record;
        record.existing = Some(record::Existing {
            kubeconfig: "/k".into(),
            context: None,
        });
        record::write(&layout, &record).unwrap();
        let error = admit(&layout, &Manifest::embedded(), Kind::Local)
            .unwrap_err()
            .to_string();
        assert!(error.contains("belongs to the existing cluster of /k"), "{error}");
        admit(&layout, &Manifest::embedded(), Kind::Existing).unwrap();

        let (_dir, layout) = fresh();
        std::fs::create_dir(layout.cluster()).unwrap();
        let error = admit(&layout, &Manifest::embedded(), Kind::Existing)
            .unwrap_err()
            .to_string();
        assert!(error.contains("started itself"), "{error}");
    }

    #[test]
    fn the_second_up_is_refused_with_the_pid_of_the_first() {
        let (_dir, layout) = fresh();
        let _first = open(&layout).unwrap();
        let error = open(&layout).unwrap_err();
        assert_eq!(crate::exit_of(&error), Exit::InUse);
        let told = error.to_string().contains(&format!("pid {}", std::process::id()));
        assert!(told, "{error}");
    }
}
