//! "Did you mean": the nearest known name to a mistyped one.

/// The candidate closest to `wanted`, if it is close enough to be a typing mistake rather than another word.
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    known
        .into_iter()
        .map(|candidate| (score(&wanted, &candidate.to_lowercase()), candidate))
        .filter(|(score, _)| *score > 0.72)
        // The first of equals wins, so the answer does not depend on float noise.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        })
        .map(|(_, candidate)| candidate)
}

/// People type the distinctive end of a long name (`apiserver`, `scheduler`), which edit distance alone scores low.
fn score(wanted: &str, candidate: &str) -> f64 {
    if wanted.len() >= 3
        && candidate
            .split('-')
            .any(|word| word.starts_with(wanted) || wanted == word)
    {
        return 0.95;
    }
    strsim::jaro_winkler(wanted, candidate)
}

/// The message for an unknown name: what was asked, the likely meaning, and what there is.
pub fn unknown<'a>(kind: &str, wanted: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    let list = known.clone().into_iter().collect::<Vec<_>>().join(", ");
    match nearest(wanted, known) {
        Some(name) => format!("there is no {kind} `{wanted}`; did you mean `{name}`? (known: {list})"),
        None if list.is_empty() => format!("there is no {kind} `{wanted}`, and none is known yet"),
        None => format!("there is no {kind} `{wanted}` (known: {list})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [&str; 5] = [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "capi-core",
    ];

    #[test]
    fn a_typing_mistake_finds_its_part() {
        assert_eq!(nearest("kube-apisever", PARTS), Some("kube-apiserver"));
        assert_eq!(nearest("ectd", PARTS), Some("etcd"));
        assert_eq!(nearest("ETCD", PARTS), Some("etcd"));
    }

    #[test]
    fn the_distinctive_half_of_a_name_is_enough() {
        assert_eq!(nearest("apiserver", PARTS), Some("kube-apiserver"));
        assert_eq!(nearest("sched", PARTS), Some("kube-scheduler"));
        assert_eq!(nearest("capi", PARTS), Some("capi-core"));
    }

    #[test]
    fn another_word_suggests_nothing() {
        assert_eq!(nearest("postgres", PARTS), None);
    }

    #[test]
    fn the_message_names_what_there_is() {
        insta::assert_snapshot!(unknown("part", "ectd", PARTS), @"there is no part `ectd`; did you mean `etcd`? (known: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, capi-core)");
        insta::assert_snapshot!(unknown("part", "x", []), @"there is no part `x`, and none is known yet");
    }
}
