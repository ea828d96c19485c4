//! A set of children: apply what is wanted, in order, then prune what is not.

use std::collections::HashSet;
use std::sync::Arc;

use kube::ResourceExt as _;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Preconditions};
use tracing::info;

use super::{Applied, Applier, Desired, Error, Owner, Target};
use crate::error::{Class, Classify};

/// Children of one kind that are at hand without a request. Implemented by [`crate::runner::Cache`].
pub trait LiveChildren: Send + Sync {
    /// One object.
    fn get(&self, namespace: Option<&str>, name: &str) -> Option<DynamicObject>;
    /// All objects that belong to an owner.
    fn owned(&self, owner: &Owner) -> Vec<DynamicObject>;
}

/// Where to find the children of one kind.
#[derive(Clone)]
pub struct Children {
    resource: ApiResource,
    source: Source,
}

#[derive(Clone)]
enum Source {
    Cached(Arc<dyn LiveChildren>),
    Listed,
}

impl std::fmt::Debug for Children {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children")
            .field("kind", &self.resource.kind)
            .finish_non_exhaustive()
    }
}

impl Children {
    /// Children in a cache: an unchanged set costs no request at all.
    pub fn cached(resource: ApiResource, cache: Arc<dyn LiveChildren>) -> Self {
        Self {
            resource,
            source: Source::Cached(cache),
        }
    }

    /// Children that are listed by their labels, one request per sync, in the namespace of their owner.
    pub fn listed<K: kube::Resource<DynamicType = ()>>() -> Self {
        Self {
            resource: ApiResource::erase::<K>(&()),
            source: Source::Listed,
        }
    }
}

/// What a sync came to.
#[derive(Debug, Clone, Default)]
pub struct Synced {
    /// The wanted objects as they are now, in the order in which they were given.
    pub applied: Vec<Applied>,
    /// The objects that were deleted.
    pub deleted: Vec<Target>,
}

impl Synced {
    /// All fields that were sent and not stored, with the object they belong to.
    pub fn pruned(&self) -> Vec<String> {
        let each = self.applied.iter().flat_map(|applied| {
            let kind = applied
                .object
                .types
                .as_ref()
                .map(|types| types.kind.clone())
                .unwrap_or_default();
            let name = applied.object.name_any();
            applied.pruned.iter().map(move |path| format!("{kind} {name}: {path}"))
        });
        each.collect()
    }
}

impl Applier {
    /// Makes the children of `owner` be exactly `desired`, as far as `kinds` goes.
    ///
    /// Objects are applied in the order given, so put what others need first. The first failure ends the sync before anything
    /// is deleted: a half-applied set must not lose its old half. Then every object of `kinds` that belongs to the owner, was
    /// made by this manager and is not wanted is deleted, under its uid and resourceVersion, so that an object which changed
    /// hands or was made anew in between survives. A kind that is not in `kinds` is applied but never pruned.
    pub async fn sync(&self, owner: &Owner, desired: &[Desired], kinds: &[Children]) -> Result<Synced, Error> {
        let mut at_hand = Vec::new();
        for children in kinds {
            at_hand.push((children, self.children_of(owner, children).await?));
        }
        let mut synced = Synced::default();
        let mut wanted = HashSet::new();
        for object in desired {
            let object = owner.stamp(object, self.manager())?;
            let target = object.target().clone();
            let live = at_hand
                .iter()
                .find(|(children, _)| children.resource == *target.resource())
                .and_then(|(children, found)| find(children, found, &target));
            let live = match live {
                Some(live) => Some(live),
                None => self.read(&target).await?,
            };
            if let Some(live) = &live
                && !owner.owns(&live.metadata)
            {
                return Err(Error::NotOurs {
                    what: target,
                    owner: owner.target().to_string(),
                });
            }
            synced.applied.push(self.apply_over(&object, live.as_ref()).await?);
            wanted.insert(target);
        }
        for (children, found) in at_hand {
            for child in found {
                let target = Target::new(
                    children.resource.clone(),
                    child.metadata.namespace.as_deref(),
                    &child.name_any(),
                );
                if !wanted.contains(&target)
                    && owner.may_prune(&child.metadata, self.manager())
                    && self.delete(&target, &child).await?
                {
                    synced.deleted.push(target);
                }
            }
        }
        Ok(synced)
    }

    async fn children_of(&self, owner: &Owner, children: &Children) -> Result<Vec<DynamicObject>, Error> {
        match &children.source {
            Source::Cached(cache) => Ok(cache.owned(owner)),
            Source::Listed => {
                let api: Api<DynamicObject> = match owner.namespace() {
                    Some(namespace) => Api::namespaced_with(self.client().clone(), namespace, &children.resource),
                    None => Api::all_with(self.client().clone(), &children.resource),
                };
                let params = ListParams::default().labels(&owner.selector(self.manager()));
                let target = Target::new(children.resource.clone(), owner.namespace(), "(children)");
                Ok(api
                    .list(&params)
                    .await
                    .map_err(|error| target.failed("list", error))?
                    .items)
            }
        }
    }

    /// Deletes an object if it still is the one we saw. Says whether there was anything to delete.
    pub async fn delete(&self, target: &Target, seen: &DynamicObject) -> Result<bool, Error> {
        self.check()?;
        let preconditions = Preconditions {
            uid: seen.metadata.uid.clone(),
            resource_version: seen.metadata.resource_version.clone(),
        };
        let params = DeleteParams::background().preconditions(preconditions);
        let result = self.api(target).delete(target.name(), &params).await;
        let gone = matches!(&result, Err(kube::Error::Api(status)) if status.is_not_found());
        self.wrote("delete", target, result.is_ok());
        self.memory().forget(target);
        match result {
            Ok(_) => {
                info!(object = %target, "deleted what is no longer wanted");
                Ok(true)
            }
            Err(_) if gone => Ok(false),
            // It changed since we saw it. The event of that change brings us back with a fresh look.
            Err(error) if error.class() == Class::Conflict => Ok(false),
            Err(error) => Err(target.failed("delete", error)),
        }
    }
}

fn find(children: &Children, found: &[DynamicObject], target: &Target) -> Option<DynamicObject> {
    let same = |object: &&DynamicObject| {
        object.metadata.name.as_deref() == Some(target.name())
            && object.metadata.namespace.as_deref() == target.namespace()
    };
    match &children.source {
        Source::Cached(cache) => cache.get(target.namespace(), target.name()),
        Source::Listed => found.iter().find(same).cloned(),
    }
}
