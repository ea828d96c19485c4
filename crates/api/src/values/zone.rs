//! Scaleway zones and regions.

use super::Invalid;
use super::text::checked_text;

const ZONE_RULE: &str = "use a Scaleway zone such as fr-par-1";
const REGION_RULE: &str = "use a Scaleway region such as fr-par";

/// `fr-par`.
fn is_region(text: &str) -> bool {
    text.split_once('-').is_some_and(|(country, city)| {
        let letters = |t: &str, len: usize| t.len() == len && t.bytes().all(|c| c.is_ascii_lowercase());
        letters(country, 2) && letters(city, 3)
    })
}

/// `fr-par-1`.
fn is_zone(text: &str) -> bool {
    text.rsplit_once('-').is_some_and(|(region, number)| {
        is_region(region) && matches!(number.len(), 1 | 2) && number.bytes().all(|c| c.is_ascii_digit())
    })
}

checked_text! {
    /// Scaleway region, such as `fr-par`. Private Networks and their addresses belong to a region.
    Region: "Scaleway region", REGION_RULE, is_region
}

checked_text! {
    /// Scaleway zone, such as `fr-par-1`. Servers belong to a zone.
    Zone: "Scaleway zone", ZONE_RULE, is_zone
}

impl Zone {
    /// Zone of a machine that names none.
    pub const DEFAULT: &'static str = "fr-par-1";

    /// The zone in a spec, or the default when there is none.
    pub fn or_default(text: Option<&str>) -> Result<Self, Invalid> {
        Self::try_from(text.filter(|t| !t.is_empty()).unwrap_or(Self::DEFAULT))
    }

    /// The region this zone is in.
    pub fn region(&self) -> Region {
        // A zone is a region, a dash and a number (`is_zone`), so there is always something before the last dash.
        let region = self.0.rsplit_once('-').map_or(self.0.as_str(), |(region, _)| region);
        Region(region.to_owned())
    }
}

impl Default for Zone {
    fn default() -> Self {
        Self(Self::DEFAULT.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_default_is_a_zone() {
        assert_eq!(Zone::try_from(Zone::DEFAULT).unwrap(), Zone::default());
    }

    #[test]
    fn a_zone_knows_its_region() {
        assert_eq!(
            Zone::try_from("nl-ams-2").unwrap().region(),
            Region::try_from("nl-ams").unwrap()
        );
    }

    #[test]
    fn things_that_are_no_zone_are_refused() {
        for bad in [
            "",
            "fr-par",
            "fr-par-",
            "fr-par-x",
            "FR-par-1",
            "fr-pari-1",
            "fr-par-123",
            "fr_par_1",
            "fr-par-1 ",
        ] {
            assert!(Zone::try_from(bad).is_err(), "{bad:?}");
        }
        assert!(Region::try_from("fr-par-1").is_err());
    }

    #[test]
    fn the_default_is_itself_a_zone() {
        assert_eq!(Zone::or_default(None).unwrap().as_str(), Zone::DEFAULT);
        assert_eq!(Zone::or_default(Some("")).unwrap().as_str(), Zone::DEFAULT);
        assert!(Zone::or_default(Some("moon")).is_err());
    }

    proptest! {
        #[test]
        fn a_zone_survives_display_and_json(text in "[a-z]{2}-[a-z]{3}-[0-9]{1,2}") {
            let zone: Zone = text.parse().unwrap();
            prop_assert_eq!(zone.to_string(), text.clone());
            let json = serde_json::to_string(&zone).unwrap();
            prop_assert_eq!(serde_json::from_str::<Zone>(&json).unwrap(), zone.clone());
            prop_assert!(text.starts_with(zone.region().as_str()));
            prop_assert!(Region::try_from(zone.region().as_str()).is_ok());
        }
    }
}
