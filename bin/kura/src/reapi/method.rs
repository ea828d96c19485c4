//! The calls we know.

/// A call, by its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Method {
    /// What the server can do.
    Capabilities,
    /// A result is read.
    GetActionResult,
    /// A result is written.
    UpdateActionResult,
    /// Which blobs have to be uploaded.
    FindMissing,
    /// Small blobs are read.
    BatchRead,
    /// Small blobs are written.
    BatchUpdate,
    /// A directory is read with all below it.
    GetTree,
    /// A blob is read.
    Read,
    /// A blob is written.
    Write,
    /// How far an upload came.
    QueryWriteStatus,
    /// Whether the node serves.
    HealthCheck,
    /// The same, and its changes.
    HealthWatch,
    /// What calls there are.
    Reflection,
    /// Anything else.
    Unknown,
}

impl Method {
    /// All, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Capabilities,
        Self::GetActionResult,
        Self::UpdateActionResult,
        Self::FindMissing,
        Self::BatchRead,
        Self::BatchUpdate,
        Self::GetTree,
        Self::Read,
        Self::Write,
        Self::QueryWriteStatus,
        Self::HealthCheck,
        Self::HealthWatch,
        Self::Reflection,
        Self::Unknown,
    ];

    /// The method of a path.
    pub fn of(path: &str) -> Self {
        let Some((service, name)) = path.strip_prefix('/').and_then(|path| path.split_once('/')) else {
            return Self::Unknown;
        };
        match (service, name) {
            ("build.bazel.remote.execution.v2.Capabilities", "GetCapabilities") => Self::Capabilities,
            ("build.bazel.remote.execution.v2.ActionCache", "GetActionResult") => Self::GetActionResult,
            ("build.bazel.remote.execution.v2.ActionCache", "UpdateActionResult") => Self::UpdateActionResult,
            ("build.bazel.remote.execution.v2.ContentAddressableStorage", "FindMissingBlobs") => Self::FindMissing,
            ("build.bazel.remote.execution.v2.ContentAddressableStorage", "BatchReadBlobs") => Self::BatchRead,
            ("build.bazel.remote.execution.v2.ContentAddressableStorage", "BatchUpdateBlobs") => Self::BatchUpdate,
            ("build.bazel.remote.execution.v2.ContentAddressableStorage", "GetTree") => Self::GetTree,
            ("google.bytestream.ByteStream", "Read") => Self::Read,
            ("google.bytestream.ByteStream", "Write") => Self::Write,
            ("google.bytestream.ByteStream", "QueryWriteStatus") => Self::QueryWriteStatus,
            ("grpc.health.v1.Health", "Check") => Self::HealthCheck,
            ("grpc.health.v1.Health", "Watch") => Self::HealthWatch,
            ("grpc.reflection.v1.ServerReflection" | "grpc.reflection.v1alpha.ServerReflection", _) => Self::Reflection,
            _ => Self::Unknown,
        }
    }

    /// The label of metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Capabilities => "GetCapabilities",
            Self::GetActionResult => "GetActionResult",
            Self::UpdateActionResult => "UpdateActionResult",
            Self::FindMissing => "FindMissingBlobs",
            Self::BatchRead => "BatchReadBlobs",
            Self::BatchUpdate => "BatchUpdateBlobs",
            Self::GetTree => "GetTree",
            Self::Read => "ByteStream.Read",
            Self::Write => "ByteStream.Write",
            Self::QueryWriteStatus => "ByteStream.QueryWriteStatus",
            Self::HealthCheck => "Health.Check",
            Self::HealthWatch => "Health.Watch",
            Self::Reflection => "ServerReflection",
            Self::Unknown => "unmatched",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positions_and_paths_are_found() {
        for (index, method) in Method::ALL.iter().enumerate() {
            assert_eq!(*method as usize, index);
        }
        assert_eq!(Method::of("/google.bytestream.ByteStream/Read"), Method::Read);
        for unknown in [
            "",
            "/",
            "/x",
            "google.bytestream.ByteStream/Read",
            "/google.bytestream.ByteStream/read",
        ] {
            assert_eq!(Method::of(unknown), Method::Unknown, "{unknown}");
        }
    }
}
