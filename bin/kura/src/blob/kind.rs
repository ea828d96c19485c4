//! What artifacts are, and the numbers they have on disk.

use super::packed;
use russet_segstore as segstore;

/// What an artifact is. The order is that of metrics; [`Kind::stored`] is that of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Kind {
    /// Xcode's compilation cache.
    Xcode,
    /// Xcode's key-value documents.
    KeyValue,
    /// Gradle's build cache.
    Gradle,
    /// Modules, uploaded in parts.
    Module,
    /// Nx.
    Nx,
    /// Metro.
    Metro,
    /// Content-addressed blobs, whoever sent them: Bazel over HTTP or gRPC, and every other REAPI client.
    Cas,
    /// Action results, of the same clients.
    Action,
    /// Turborepo.
    Turborepo,
    /// ccache.
    Ccache,
    /// sccache.
    Sccache,
    /// Maven's build-cache extension.
    Maven,
    /// Go's build cache.
    Go,
    /// Anything else, under a key its owner chose.
    Generic,
}

impl Kind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Xcode,
        Self::KeyValue,
        Self::Gradle,
        Self::Module,
        Self::Nx,
        Self::Metro,
        Self::Cas,
        Self::Action,
        Self::Turborepo,
        Self::Ccache,
        Self::Sccache,
        Self::Maven,
        Self::Go,
        Self::Generic,
    ];

    /// The label of metrics and usage events.
    pub fn producer(self) -> &'static str {
        match self {
            Self::Xcode => "xcode",
            Self::KeyValue => "keyvalue",
            Self::Gradle => "gradle",
            Self::Module => "module",
            Self::Nx => "nx",
            Self::Metro => "metro",
            Self::Cas => "reapi",
            Self::Action => "reapi_action",
            Self::Turborepo => "turborepo",
            Self::Ccache => "ccache",
            Self::Sccache => "sccache",
            Self::Maven => "maven",
            Self::Go => "go",
            Self::Generic => "generic",
        }
    }

    /// The kind on disk. These numbers never change.
    pub fn stored(self) -> segstore::Kind {
        match self {
            Self::Xcode => segstore::Kind::immutable(1),
            Self::Gradle => segstore::Kind::immutable(2),
            Self::Module => segstore::Kind::immutable(3),
            Self::Nx => segstore::Kind::immutable(4),
            Self::Metro => segstore::Kind::immutable(5),
            Self::Cas => segstore::Kind::immutable(6),
            Self::KeyValue => segstore::Kind::mutable(1),
            Self::Action => segstore::Kind::mutable(2),
            Self::Turborepo => segstore::Kind::mutable(3),
            Self::Ccache => segstore::Kind::mutable(4),
            Self::Sccache => segstore::Kind::mutable(5),
            Self::Maven => segstore::Kind::mutable(6),
            Self::Go => segstore::Kind::mutable(7),
            Self::Generic => segstore::Kind::mutable(8),
        }
    }

    /// The kind of an entry on disk, if it is one of ours.
    pub fn of_stored(stored: segstore::Kind) -> Option<Self> {
        // The compressed form of content is content.
        let stored = if stored == packed::STORED {
            Self::Cas.stored()
        } else {
            stored
        };
        Self::ALL.into_iter().find(|kind| kind.stored() == stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_keep_their_numbers_on_disk_and_their_places_in_metrics() {
        for (index, kind) in Kind::ALL.iter().enumerate() {
            assert_eq!(*kind as usize, index);
            assert_eq!(Kind::of_stored(kind.stored()), Some(*kind));
        }
        assert!(Kind::KeyValue.stored().is_mutable() && !Kind::Gradle.stored().is_mutable());
    }
}
