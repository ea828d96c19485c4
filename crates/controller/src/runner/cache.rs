//! Watched objects, at hand without a request.

use std::fmt::Debug;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Resource, ResourceExt as _};
use serde::Serialize;

use super::lane::Guarded;
use crate::apply::{Children, LiveChildren, Owner};
use crate::scope::Place;

/// The objects of one kind in scope, as the watches last saw them. Cheap to clone.
pub struct Cache<C: Resource<DynamicType = ()> + 'static> {
    stores: Vec<(Place, Store<Guarded<C>>)>,
}

impl<C: Resource<DynamicType = ()> + 'static> Clone for Cache<C> {
    fn clone(&self) -> Self {
        Self {
            stores: self.stores.clone(),
        }
    }
}

impl<C: Resource<DynamicType = ()> + 'static> Default for Cache<C> {
    fn default() -> Self {
        Self { stores: Vec::new() }
    }
}

impl<C: Resource<DynamicType = ()> + 'static> Debug for Cache<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("kind", &C::kind(&()))
            .field("stores", &self.stores.len())
            .finish()
    }
}

impl<C: Resource<DynamicType = ()> + Clone + 'static> Cache<C> {
    pub(super) fn add(&mut self, place: Place, store: Store<Guarded<C>>) {
        self.stores.push((place, store));
    }

    /// One object; none if it is absent or could not be read.
    pub fn get(&self, namespace: Option<&str>, name: &str) -> Option<C> {
        let reference = ObjectReference {
            name: Some(name.to_owned()),
            namespace: namespace.map(ToOwned::to_owned),
            ..ObjectReference::default()
        };
        let mut key = ObjectRef::<Guarded<C>>::new(reference.name.as_deref()?);
        key.namespace = reference.namespace;
        self.stores
            .iter()
            .find_map(|(_, store)| store.get(&key)?.0.as_ref().ok().cloned())
    }

    /// All objects that a predicate picks.
    pub fn filter(&self, pick: impl Fn(&C) -> bool) -> Vec<C> {
        let mut found = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for (_, store) in &self.stores {
            for object in store.state() {
                if let Ok(object) = &object.0
                    && pick(object)
                    // Several lanes may watch the same cluster-scoped objects.
                    && seen.insert((object.namespace(), object.name_any()))
                {
                    found.push(object.clone());
                }
            }
        }
        found
    }
}

impl<C> Cache<C>
where
    C: Resource<DynamicType = ()> + Clone + Serialize + Send + Sync + Debug + 'static,
{
    /// These objects as children for [`crate::Applier::sync`].
    pub fn children(&self) -> Children {
        Children::cached(ApiResource::erase::<C>(&()), Arc::new(self.clone()))
    }
}

impl<C> LiveChildren for Cache<C>
where
    C: Resource<DynamicType = ()> + Clone + Serialize + Send + Sync + Debug + 'static,
{
    fn get(&self, namespace: Option<&str>, name: &str) -> Option<DynamicObject> {
        dynamic(&Cache::get(self, namespace, name)?)
    }

    fn owned(&self, owner: &Owner) -> Vec<DynamicObject> {
        self.filter(|object| owner.owns(object.meta()))
            .iter()
            .filter_map(dynamic)
            .collect()
    }
}

/// An object that our own type serialised is an object; should it ever not be, the caller reads it from the server instead.
fn dynamic<C: Resource<DynamicType = ()> + Serialize>(object: &C) -> Option<DynamicObject> {
    let mut value = serde_json::to_value(object).ok()?;
    let root = value.as_object_mut()?;
    root.insert("apiVersion".to_owned(), C::api_version(&()).into());
    root.insert("kind".to_owned(), C::kind(&()).into());
    serde_json::from_value(value).ok()
}
