//! Ids of servers.

use super::text::checked_text;

const RULE: &str = "use the id Scaleway gives, such as 2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b";

fn is_server_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-')
}

checked_text! {
    /// Scaleway's id of a server. A UUID today; only what makes it safe in a path and in a provider id is checked.
    ServerId: "server id", RULE, is_server_id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_cannot_leave_its_place_in_a_path() {
        for bad in ["", "..", "a/b", "a b", "a?b", &"x".repeat(65)] {
            assert!(ServerId::try_from(bad).is_err(), "{bad:?}");
        }
        assert!(ServerId::try_from("2f1c7a50-9f3b-4f5e-8a53-0f6a0e1d2c3b").is_ok());
    }
}
