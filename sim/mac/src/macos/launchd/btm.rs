//! Background Task Management: who registered, and how often. [facts 1.5]

use std::collections::BTreeMap;

/// One registered item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) uid: u32,
    pub(crate) uuid: String,
    pub(crate) path: String,
    pub(crate) program: String,
    /// Registrations after the first.
    pub(crate) again: u32,
    pub(crate) daemon: bool,
}

/// The database; it survives reboots.
#[derive(Debug, Default)]
pub(crate) struct Btm {
    items: BTreeMap<String, Item>,
}

impl Btm {
    /// A property list was bootstrapped, by somebody or at boot. Returns how often it was registered again.
    pub(crate) fn register(&mut self, label: &str, uid: u32, path: &str, program: &str, new: bool) -> u32 {
        let number = self.items.len() + 1;
        let item = self
            .items
            .entry(label.to_owned())
            .and_modify(|item| item.again += u32::from(new))
            .or_insert_with(|| Item {
                uid,
                uuid: format!("{number:08X}-0000-4000-8000-{:012X}", label.len()),
                path: path.to_owned(),
                program: program.to_owned(),
                again: 0,
                daemon: uid == 0,
            });
        path.clone_into(&mut item.path);
        program.clone_into(&mut item.program);
        item.again
    }

    /// How often a label was registered again.
    pub(crate) fn again(&self, label: &str) -> u32 {
        self.items.get(label).map_or(0, |item| item.again)
    }

    /// All registrations after the first of each label.
    pub(crate) fn churn(&self) -> u32 {
        self.items.values().map(|item| item.again).sum()
    }

    /// What `sfltool dumpbtm` prints. [facts 1.5; spacing is a guess]
    pub(crate) fn dump(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for (uid, name) in [(-2_i64, "-2"), (501, "501")] {
            let _ = writeln!(
                text,
                "========================\n Records for UID {name} : FFFFEEEE-DDDD-CCCC-BBBB-AAAA{uid:08X}\n========================\n\n Items:\n"
            );
            let mine = self.items.iter().filter(|(_, item)| item.daemon == (uid == -2));
            for (number, (label, item)) in mine.enumerate() {
                let (kind, bits) = if item.daemon {
                    ("legacy daemon", "0x10010")
                } else {
                    ("legacy agent", "0x10008")
                };
                let short = item.program.rsplit('/').next().unwrap_or_default();
                let _ = writeln!(
                    text,
                    " #{}:\n                 UUID: {}\n                 Name: {short}\n       Developer Name: (null)\n      Team Identifier: (null)\n                 Type: {kind} ({bits})\n                Flags: [ legacy ] (0x1)\n          Disposition: [enabled, allowed, notified] (0xb)\n           Identifier: 16.{label}\n                  URL: file://{}\n      Executable Path: {}\n           Generation: {}\n    Parent Identifier: Unknown Developer\n",
                    number + 1,
                    item.uuid,
                    item.path,
                    item.program,
                    item.again + 1
                );
            }
        }
        text
    }
}
