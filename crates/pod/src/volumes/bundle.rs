//! Trust anchors of a cluster, for programs that check certificates.

use super::Error;
use crate::admit::labels_match;
use bytes::Bytes;
use k8s_openapi::api::certificates::v1beta1::ClusterTrustBundle;
use k8s_openapi::api::core::v1::ClusterTrustBundleProjection;
use pem::{EncodeConfig, LineEnding, Pem};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The certificates that a projection selects, each once and in an order of no meaning that stays the same.
pub(super) fn anchors(
    source: &ClusterTrustBundleProjection,
    all: &BTreeMap<String, Arc<ClusterTrustBundle>>,
) -> Result<Bytes, Error> {
    let optional = source.optional == Some(true);
    let selected: Vec<&ClusterTrustBundle> = match (&source.name, &source.signer_name) {
        (Some(name), _) => match all.get(name) {
            Some(bundle) => vec![bundle],
            None if optional => Vec::new(),
            None => return Err(Error::NoTrustBundle(name.clone())),
        },
        (None, Some(signer)) => {
            let selected: Vec<_> = all
                .values()
                .map(Arc::as_ref)
                .filter(|bundle| bundle.spec.signer_name.as_ref() == Some(signer) && selects(source, bundle))
                .collect();
            if selected.is_empty() && !optional {
                return Err(Error::NoTrustBundleOf(signer.clone()));
            }
            selected
        }
        (None, None) => return Err(Error::Unsupported),
    };
    let mut certificates = BTreeSet::new();
    for bundle in selected {
        let blocks = pem::parse_many(&bundle.spec.trust_bundle).map_err(|error| Error::BadTrustBundle {
            name: bundle.metadata.name.clone().unwrap_or_default(),
            why: error.to_string(),
        })?;
        let blocks = blocks.into_iter().filter(|block| block.tag() == CERTIFICATE);
        certificates.extend(blocks.map(Pem::into_contents));
    }
    let blocks: Vec<Pem> = certificates.into_iter().map(|der| Pem::new(CERTIFICATE, der)).collect();
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    // Without an empty line between them, as everybody writes them.
    let text: String = blocks.iter().map(|block| pem::encode_config(block, config)).collect();
    Ok(Bytes::from(text))
}

const CERTIFICATE: &str = "CERTIFICATE";

/// No selector selects nothing, an empty one everything.
fn selects(source: &ClusterTrustBundleProjection, bundle: &ClusterTrustBundle) -> bool {
    let none = BTreeMap::new();
    let labels = bundle.metadata.labels.as_ref().unwrap_or(&none);
    let selector = source.label_selector.as_ref();
    selector.is_some_and(|selector| labels_match(selector, labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn block(contents: &str) -> String {
        pem::encode_config(
            &Pem::new(CERTIFICATE, contents),
            EncodeConfig::new().set_line_ending(LineEnding::LF),
        )
    }

    fn bundle(name: &str, signer: Option<&str>, label: &str, certificates: &[&str]) -> ClusterTrustBundle {
        let blocks: Vec<String> = certificates.iter().map(|contents| block(contents)).collect();
        let blocks = blocks.join("a word in between\n");
        serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {"ring": label}}, "spec": {"signerName": signer, "trustBundle": blocks},
        }))
        .unwrap()
    }

    fn told(source: Value) -> Result<String, String> {
        let all = [
            bundle("corporate", None, "a", &["one"]),
            bundle("acme.com:ca:1", Some("acme.com/ca"), "a", &["two", "one"]),
            bundle("acme.com:ca:2", Some("acme.com/ca"), "b", &["one", "three"]),
        ];
        let all = all
            .into_iter()
            .map(|bundle| (bundle.metadata.name.clone().unwrap(), Arc::new(bundle)));
        let mut source = source;
        source["path"] = json!("ca.pem");
        let anchors = anchors(&serde_json::from_value(source).unwrap(), &all.collect());
        anchors
            .map(|bytes| String::from_utf8(bytes.to_vec()).unwrap())
            .map_err(|error| error.to_string())
    }

    #[test]
    fn a_bundle_by_its_name_is_its_certificates_and_nothing_in_between() {
        assert_eq!(told(json!({"name": "corporate"})), Ok(block("one")));
    }

    #[test]
    fn bundles_of_a_signer_are_put_together_and_no_certificate_comes_twice() {
        let everything = json!({"signerName": "acme.com/ca", "labelSelector": {}});
        let found = told(everything);
        assert_eq!(found, Ok([block("one"), block("three"), block("two")].concat()));
        let some = json!({"signerName": "acme.com/ca", "labelSelector": {"matchLabels": {"ring": "b"}}});
        assert_eq!(told(some), Ok([block("one"), block("three")].concat()));
        let rule = json!({"key": "ring", "operator": "NotIn", "values": ["b"]});
        let others = json!({"signerName": "acme.com/ca", "labelSelector": {"matchExpressions": [rule]}});
        assert_eq!(told(others), Ok([block("one"), block("two")].concat()));
    }

    #[test]
    fn what_is_missing_is_said_unless_it_may_be() {
        assert_eq!(
            told(json!({"name": "no"})),
            Err("clustertrustbundle.certificates.k8s.io \"no\" not found".to_owned())
        );
        let nothing = json!({"signerName": "acme.com/ca"});
        assert_eq!(
            told(nothing),
            Err(
                "combination of signerName and labelSelector matched zero ClusterTrustBundles (acme.com/ca)".to_owned()
            )
        );
        for source in [json!({"name": "no"}), json!({"signerName": "acme.com/ca"})] {
            let mut source = source;
            source["optional"] = json!(true);
            assert_eq!(told(source), Ok(String::new()), "the file is there, and empty");
        }
    }
}
