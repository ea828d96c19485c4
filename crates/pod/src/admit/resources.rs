//! What a Pod asks for, and whether it is there.

use super::{Host, Refusal};
use crate::quantity::{Amount, amounts};
use crate::spec::{self, Kind};
use k8s_openapi::api::core::v1::{Container, Pod};
use std::collections::BTreeMap;
use std::fmt::Display;

type Amounts = BTreeMap<String, Amount>;

fn container_requests(container: &Container) -> Amounts {
    let resources = container.resources.as_ref();
    let mut wanted = amounts(resources.and_then(|resources| resources.limits.as_ref()));
    wanted.extend(amounts(resources.and_then(|resources| resources.requests.as_ref())));
    wanted
}

fn add(to: &mut Amounts, more: &Amounts) {
    for (name, amount) in more {
        let sum = to.entry(name.clone()).or_default();
        *sum = sum.plus(*amount);
    }
}

fn raise(to: &mut Amounts, at_least: &Amounts) {
    for (name, amount) in at_least {
        let most = to.entry(name.clone()).or_default();
        *most = (*most).max(*amount);
    }
}

/// What a Pod needs at its worst moment: init containers one at a time beside the sidecars before them, then all the others.
pub fn requests(pod: &Pod) -> BTreeMap<String, Amount> {
    let (mut together, mut sidecars, mut peak) = (Amounts::new(), Amounts::new(), Amounts::new());
    for (kind, container) in spec::containers(pod) {
        let own = container_requests(container);
        match kind {
            Kind::Init => {
                let mut moment = sidecars.clone();
                add(&mut moment, &own);
                raise(&mut peak, &moment);
            }
            Kind::Sidecar => {
                add(&mut sidecars, &own);
                raise(&mut peak, &sidecars);
            }
            Kind::Main => add(&mut together, &own),
        }
    }
    add(&mut together, &sidecars);
    raise(&mut peak, &together);
    let spec = pod.spec.as_ref();
    let of_pod = spec.and_then(|spec| spec.resources.as_ref());
    // What is said of the Pod as a whole goes before what is said of its containers.
    peak.extend(amounts(of_pod.and_then(|resources| resources.limits.as_ref())));
    peak.extend(amounts(of_pod.and_then(|resources| resources.requests.as_ref())));
    add(&mut peak, &amounts(spec.and_then(|spec| spec.overhead.as_ref())));
    peak
}

/// The class by which Pods are chosen when a node runs out of something.
pub fn qos_class(pod: &Pod) -> &'static str {
    let of_pod = pod.spec.as_ref().and_then(|spec| spec.resources.as_ref());
    let lists: Vec<_> = match of_pod {
        Some(resources) => vec![Some(resources)],
        None => spec::containers(pod)
            .map(|(_, container)| container.resources.as_ref())
            .collect(),
    };
    let wanted = |list: Option<&BTreeMap<String, _>>| {
        let mut list = amounts(list);
        list.retain(|name, amount| matches!(name.as_str(), "cpu" | "memory") && *amount > Amount::ZERO);
        list
    };
    let (mut any, mut guaranteed) = (false, true);
    for resources in lists {
        let limits = wanted(resources.and_then(|resources| resources.limits.as_ref()));
        let mut requests = limits.clone();
        requests.extend(wanted(resources.and_then(|resources| resources.requests.as_ref())));
        any |= !requests.is_empty();
        guaranteed &= limits.len() == 2 && requests == limits;
    }
    match (any, guaranteed) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

pub(super) fn shortage(what: &str, requested: impl Display, used: impl Display, capacity: impl Display) -> String {
    format!("Node didn't have enough resource: {what}, requested: {requested}, used: {used}, capacity: {capacity}")
}

pub(super) fn check(pod: &Pod, host: &Host, others: &[&Pod]) -> Result<(), Refusal> {
    if let Some(most) = host.allocatable.get("pods").map(|most| most.value())
        && i64::try_from(others.len()).unwrap_or(i64::MAX) >= most
    {
        return Err(Refusal::new("OutOfpods", shortage("pods", 1, others.len(), most)));
    }
    let mut used = Amounts::new();
    for other in others {
        add(&mut used, &requests(other));
    }
    for (name, wanted) in requests(pod).into_iter().filter(|(_, wanted)| *wanted > Amount::ZERO) {
        let there = host.allocatable.get(&name).copied().unwrap_or_default();
        let taken = used.get(&name).copied().unwrap_or_default();
        if taken.plus(wanted) > there {
            let shown = |amount: Amount| if name == "cpu" { amount.milli() } else { amount.value() };
            let message = shortage(&name, shown(wanted), shown(taken), shown(there));
            return Err(Refusal::new(format!("OutOf{name}"), message));
        }
    }
    Ok(())
}
