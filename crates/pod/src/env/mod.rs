//! The environment of a container, its command and its arguments.
//!
//! Later wins: variables of services, then `envFrom` in its order, then `env` in its order. A value of `env` may use what came
//! before it as `$(NAME)`; what is not known stays as it is written, and `$$` is a dollar. Whatever is required and missing is
//! an [`Error`] with the words of a kubelet; the container then waits with `CreateContainerConfigError` and is tried again.

mod expand;
mod field;
mod resource;
mod services;

pub use expand::expand;
pub(crate) use field::field;
pub(crate) use resource::resource;

use crate::objects::{Context, Objects};
use k8s_openapi::api::core::v1::{Container, EnvFromSource, EnvVarSource};
use russet_telemetry::Secret;
use std::collections::BTreeMap;

/// Why a container cannot be given what its spec asks for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A ConfigMap is missing.
    #[error("configmap \"{0}\" not found")]
    NoConfigMap(String),
    /// A Secret is missing.
    #[error("secret \"{0}\" not found")]
    NoSecret(String),
    /// A key is missing.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// Which.
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// Where.
        namespace: String,
        /// In which.
        name: String,
    },
    /// A value cannot be in an environment.
    #[error(
        "key {key} in Secret {namespace}/{name} is no text, and an environment holds only text; mount it as a file"
    )]
    NotText {
        /// Which.
        key: String,
        /// Where.
        namespace: String,
        /// In which.
        name: String,
    },
    /// A field that cannot be told.
    #[error("unsupported fieldPath: {0}")]
    Field(String),
    /// A resource that cannot be told.
    #[error("unsupported container resource: {0}")]
    Resource(String),
    /// A container that is not in the Pod.
    #[error("container {0} not found")]
    NoContainer(String),
    /// The address is known only once the VM is up.
    #[error("{0} is not known before the VM has an address")]
    NoAddress(&'static str),
    /// A source of a value that we do not have.
    #[error(
        "environment variable {0} has a source that a VM cannot read; use value, fieldRef, resourceFieldRef, configMapKeyRef or secretKeyRef"
    )]
    Source(String),
}

/// The variables of a container. Values are secret, since nobody knows which of them are not.
#[derive(Clone, Debug, Default)]
pub struct Environment {
    vars: BTreeMap<String, Secret<String>>,
}

impl Environment {
    /// A variable.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.vars.get(name).map(|value| value.expose().as_str())
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Secret<String>)> {
        self.vars.iter().map(|(name, value)| (name.as_str(), value))
    }

    fn set(&mut self, name: impl Into<String>, value: String) {
        self.vars.insert(name.into(), Secret::new(value));
    }

    /// Fills a text in.
    pub fn expand(&self, text: &str) -> String {
        expand(text, |name| self.get(name).map(str::to_owned))
    }

    /// Command and arguments as they are to be run. Both empty means what the image does by itself.
    pub fn command(&self, container: &Container) -> Command {
        let fill = |words: &Option<Vec<String>>| words.iter().flatten().map(|word| self.expand(word)).collect();
        Command {
            command: fill(&container.command),
            args: fill(&container.args),
        }
    }
}

/// What a container runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Command {
    /// The program and its first arguments.
    pub command: Vec<String>,
    /// More arguments.
    pub args: Vec<String>,
}

/// Whether the environment of a container cannot be made before its VM has an address.
pub fn needs_address(container: &Container) -> bool {
    let sources = container.env.iter().flatten().filter_map(|var| var.value_from.as_ref());
    sources
        .filter_map(|source| source.field_ref.as_ref())
        .any(|field| matches!(field.field_path.as_str(), "status.podIP" | "status.podIPs"))
}

/// Makes the environment of a container.
pub fn environment(context: &Context<'_>, container: &Container, objects: &Objects) -> Result<Environment, Error> {
    let links = context
        .pod
        .spec
        .as_ref()
        .and_then(|spec| spec.enable_service_links)
        .unwrap_or(true);
    let mut result = Environment::default();
    for (name, value) in services::variables(&objects.services, context.namespace(), links) {
        result.set(name, value);
    }
    for source in container.env_from.iter().flatten() {
        for (key, value) in from_object(context, source, objects)? {
            result.set(format!("{}{key}", source.prefix.as_deref().unwrap_or_default()), value);
        }
    }
    for var in container.env.iter().flatten() {
        let value = match (&var.value, &var.value_from) {
            (Some(value), _) if !value.is_empty() => result.expand(value),
            (_, Some(source)) => match from_source(context, container, source, &var.name, objects)? {
                Some(value) => value,
                // Optional and not there: the variable is not set at all.
                None => continue,
            },
            _ => String::new(),
        };
        result.set(var.name.clone(), value);
    }
    Ok(result)
}

fn from_object(
    context: &Context<'_>,
    source: &EnvFromSource,
    objects: &Objects,
) -> Result<Vec<(String, String)>, Error> {
    if let Some(source) = &source.config_map_ref {
        let Some(found) = objects.config_maps.get(&source.name) else {
            return absent(source.optional, || Error::NoConfigMap(source.name.clone()));
        };
        return Ok(found.data.clone().into_iter().flatten().collect());
    }
    let Some(source) = &source.secret_ref else {
        return Ok(Vec::new());
    };
    let Some(found) = objects.secrets.get(&source.name) else {
        return absent(source.optional, || Error::NoSecret(source.name.clone()));
    };
    let data = found.data.iter().flatten();
    data.map(|(key, value)| Ok((key.clone(), text(context, &source.name, key, &value.0)?)))
        .collect()
}

fn from_source(
    context: &Context<'_>,
    container: &Container,
    source: &EnvVarSource,
    variable: &str,
    objects: &Objects,
) -> Result<Option<String>, Error> {
    if let Some(source) = &source.field_ref {
        return field(context, &source.field_path).map(Some);
    }
    if let Some(source) = &source.resource_field_ref {
        return resource(context, source, Some(container)).map(Some);
    }
    if let Some(source) = &source.config_map_key_ref {
        let Some(found) = objects.config_maps.get(&source.name) else {
            return absent(source.optional, || Error::NoConfigMap(source.name.clone()));
        };
        let Some(value) = found.data.as_ref().and_then(|data| data.get(&source.key)) else {
            return absent(source.optional, || {
                no_key(context, "ConfigMap", &source.name, &source.key)
            });
        };
        return Ok(Some(value.clone()));
    }
    if let Some(source) = &source.secret_key_ref {
        let Some(found) = objects.secrets.get(&source.name) else {
            return absent(source.optional, || Error::NoSecret(source.name.clone()));
        };
        let Some(value) = found.data.as_ref().and_then(|data| data.get(&source.key)) else {
            return absent(source.optional, || no_key(context, "Secret", &source.name, &source.key));
        };
        return text(context, &source.name, &source.key, &value.0).map(Some);
    }
    Err(Error::Source(variable.to_owned()))
}

fn absent<T: Default>(optional: Option<bool>, error: impl FnOnce() -> Error) -> Result<T, Error> {
    if optional == Some(true) {
        Ok(T::default())
    } else {
        Err(error())
    }
}

fn no_key(context: &Context<'_>, kind: &'static str, name: &str, key: &str) -> Error {
    Error::NoKey {
        key: key.to_owned(),
        kind,
        namespace: context.namespace().to_owned(),
        name: name.to_owned(),
    }
}

fn text(context: &Context<'_>, name: &str, key: &str, value: &[u8]) -> Result<String, Error> {
    std::str::from_utf8(value)
        .map(str::to_owned)
        .map_err(|_| Error::NotText {
            key: key.to_owned(),
            namespace: context.namespace().to_owned(),
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests;
