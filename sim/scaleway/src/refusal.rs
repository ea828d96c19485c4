//! What the API answers when it does not do what was asked.
//!
//! Types, statuses and fields are those of the real API: `details` for several reasons, `resource` and `resource_id` for
//! things, `help_message` for people. Messages were taken from recorded answers where there are any.

use crate::ids::Id;
use http::StatusCode;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Why an argument was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reason {
    /// It must be given.
    Required,
    /// It cannot be read.
    Format,
    /// It can be read, and is not allowed.
    Constraint,
    /// Nobody knows this argument.
    Unknown,
}

/// One refused argument.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Argument {
    pub(crate) name: String,
    pub(crate) reason: Reason,
    pub(crate) help: String,
}

/// An answer that is an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 400: something about the arguments.
    Arguments(Vec<Argument>),
    /// 401: who are you?
    Authentication { reason: &'static str },
    /// 403: you may not. Also what a vanished Apple silicon server answers.
    Permissions {
        action: &'static str,
        resource: &'static str,
    },
    /// 403: enough already.
    Quota {
        resource: &'static str,
        quota: u32,
        current: u32,
    },
    /// 404.
    NotFound { resource: &'static str, id: String },
    /// 404: the path itself is unknown. Not `not_found`, so that no client takes a typo for a deleted server.
    Route(String),
    /// 405.
    Method(&'static str),
    /// 409: wait until it is over.
    Transient {
        resource: &'static str,
        id: Id,
        state: String,
    },
    /// 409: there is one already.
    Exists {
        resource: &'static str,
        id: Id,
        help: String,
    },
    /// 412: nothing left.
    OutOfStock { resource: String },
    /// 412: not in this state.
    Precondition { precondition: &'static str, help: String },
    /// 423: by the abuse or billing team.
    Locked { resource: &'static str, id: Id },
    /// 400 as the Instance API said it for years: one message, and messages per field.
    InvalidRequest {
        message: String,
        fields: Vec<(String, String)>,
    },
    /// 404 as the Instance API said it for years.
    UnknownResource { message: String },
    /// 501: the real API has this, the emulator does not.
    NotEmulated(String),
}

impl Refusal {
    /// One refused argument.
    pub(crate) fn argument(name: &str, reason: Reason, help: impl Into<String>) -> Self {
        Self::Arguments(vec![Argument {
            name: name.to_owned(),
            reason,
            help: help.into(),
        }])
    }

    /// The same in the older words of the Instance API.
    pub(crate) fn in_older_words(self) -> Self {
        match self {
            Self::Arguments(arguments) => Self::InvalidRequest {
                message: "Validation Error".to_owned(),
                fields: arguments
                    .into_iter()
                    .map(|argument| (argument.name, argument.help))
                    .collect(),
            },
            Self::Precondition { help, .. } => Self::InvalidRequest {
                message: help,
                fields: Vec::new(),
            },
            Self::NotFound { id, .. } => Self::UnknownResource {
                message: format!("\"{id}\" not found"),
            },
            other => other,
        }
    }

    /// Nothing with this id.
    pub(crate) fn not_found(resource: &'static str, id: impl Into<String>) -> Self {
        Self::NotFound {
            resource,
            id: id.into(),
        }
    }

    /// The HTTP status and the `type` of the body.
    fn shape(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Arguments(_) => (StatusCode::BAD_REQUEST, "invalid_arguments"),
            Self::InvalidRequest { .. } => (StatusCode::BAD_REQUEST, "invalid_request_error"),
            Self::Authentication { .. } => (StatusCode::UNAUTHORIZED, "denied_authentication"),
            Self::Permissions { .. } => (StatusCode::FORBIDDEN, "permissions_denied"),
            Self::Quota { .. } => (StatusCode::FORBIDDEN, "quotas_exceeded"),
            Self::NotFound { .. } => (StatusCode::NOT_FOUND, "not_found"),
            Self::UnknownResource { .. } => (StatusCode::NOT_FOUND, "unknown_resource"),
            Self::Route(_) => (StatusCode::NOT_FOUND, "unknown_route"),
            Self::Method(_) => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::Transient { .. } => (StatusCode::CONFLICT, "transient_state"),
            Self::Exists { .. } => (StatusCode::CONFLICT, "already_exists"),
            Self::OutOfStock { .. } => (StatusCode::PRECONDITION_FAILED, "out_of_stock"),
            Self::Precondition { .. } => (StatusCode::PRECONDITION_FAILED, "precondition_failed"),
            Self::Locked { .. } => (StatusCode::LOCKED, "locked"),
            Self::NotEmulated(_) => (StatusCode::NOT_IMPLEMENTED, "not_emulated"),
        }
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.shape().0
    }

    pub(crate) fn kind(&self) -> &'static str {
        self.shape().1
    }

    /// The body.
    pub(crate) fn body(&self) -> Value {
        let mut body = match self {
            Self::Arguments(arguments) => json!({
                "message": "invalid argument(s)",
                "details": arguments.iter().map(|argument| json!({
                    "argument_name": argument.name,
                    "reason": argument.reason,
                    "help_message": argument.help,
                })).collect::<Vec<_>>(),
            }),
            Self::Authentication { reason } => {
                json!({"message": "authentication is denied", "method": "api_key", "reason": reason})
            }
            Self::Permissions { action, resource } => json!({
                "message": "insufficient permissions",
                "details": [{"action": action, "resource": resource}],
            }),
            Self::Quota {
                resource,
                quota,
                current,
            } => json!({
                "message": "quota(s) exceeded for this resource",
                "details": [{"resource": resource, "quota": quota, "current": current}],
            }),
            Self::NotFound { resource, id } => {
                json!({"message": "resource is not found", "resource": resource, "resource_id": id})
            }
            Self::Route(what) => json!({"message": format!("no such route: {what}")}),
            Self::Method(allowed) => json!({"message": format!("method not allowed; try {allowed}")}),
            Self::Transient { resource, id, state } => json!({
                "message": "resource is in a transient state",
                "resource": resource,
                "resource_id": id,
                "current_state": state,
            }),
            Self::Exists { resource, id, help } => json!({
                "message": "resource already exists",
                "resource": resource,
                "resource_id": id,
                "help_message": help,
            }),
            Self::OutOfStock { resource } => json!({"message": "resource is out of stock", "resource": resource}),
            Self::Precondition { precondition, help } => json!({
                "message": "precondition failed",
                "precondition": precondition,
                "help_message": help,
            }),
            Self::Locked { resource, id } => {
                json!({"message": "resource is locked", "resource": resource, "resource_id": id})
            }
            Self::InvalidRequest { message, fields } => {
                let mut by_field: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
                for (field, help) in fields {
                    by_field.entry(field).or_default().push(help);
                }
                json!({"message": message, "fields": by_field})
            }
            Self::UnknownResource { message } => json!({"message": message}),
            Self::NotEmulated(what) => json!({"message": format!("the emulator does not have this: {what}")}),
        };
        if let Some(fields) = body.as_object_mut() {
            fields.insert("type".to_owned(), self.kind().into());
        }
        body
    }
}
