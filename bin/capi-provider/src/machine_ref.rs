//! Which machine something belongs to.

use std::fmt;

use russet_api::ScalewayAppleSiliconMachine;

/// A machine by name, and by uid: a machine made anew under an old name is another one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MachineRef {
    /// Its namespace.
    pub namespace: String,
    /// Its name, which is also the name of its Node.
    pub name: String,
    /// Its uid.
    pub uid: String,
}

impl MachineRef {
    /// Names an object as the API server has it; none for one that was never stored.
    pub fn of(machine: &ScalewayAppleSiliconMachine) -> Option<Self> {
        let meta = &machine.metadata;
        Some(Self {
            namespace: meta.namespace.clone()?,
            name: meta.name.clone()?,
            uid: meta.uid.clone()?,
        })
    }
}

impl fmt::Display for MachineRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}
