//! In which order a list comes: by age, by last change or by name, from either end.

use crate::ids::Id;
use crate::strict::Query;
use jiff::Timestamp;
use std::cmp::Ordering;

/// What a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    Created,
    Updated,
    Name,
}

/// The order a list was asked for in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sorting {
    by: By,
    descending: bool,
}

/// What a row can be sorted by. Rows that are equal in it are told apart by their ids.
pub(crate) struct Stamps<'a> {
    pub(crate) created: Timestamp,
    pub(crate) updated: Timestamp,
    pub(crate) name: &'a str,
    pub(crate) id: &'a Id,
}

impl<'a> Stamps<'a> {
    /// Nothing but the id; lists that can be sorted by more say more.
    pub(crate) fn of(id: &'a Id) -> Self {
        Self {
            created: Timestamp::MIN,
            updated: Timestamp::MIN,
            name: "",
            id,
        }
    }
}

impl Sorting {
    /// Reads one of the words of a list, as `name_desc`; the first is the default.
    pub(crate) fn read(query: &mut Query, parameter: &str, words: &[&'static str]) -> Self {
        let word = query.choice(parameter, words);
        let by = match word.split('_').next() {
            Some("name") => By::Name,
            Some("updated" | "modification") => By::Updated,
            _ => By::Created,
        };
        Self {
            by,
            descending: word.ends_with("desc"),
        }
    }

    /// The words most lists know.
    pub(crate) fn by_age_or_name(query: &mut Query) -> Self {
        let words = ["created_at_asc", "created_at_desc", "name_asc", "name_desc"];
        Self::read(query, "order_by", &words)
    }

    pub(crate) fn by_age(query: &mut Query) -> Self {
        Self::read(query, "order_by", &["created_at_asc", "created_at_desc"])
    }

    pub(crate) fn sort<T>(self, rows: &mut [&T], stamps: impl Fn(&T) -> Stamps<'_>) {
        rows.sort_by(|a, b| {
            let order = self.compare(&stamps(a), &stamps(b));
            if self.descending { order.reverse() } else { order }
        });
    }

    fn compare(self, a: &Stamps<'_>, b: &Stamps<'_>) -> Ordering {
        let order = match self.by {
            By::Created => a.created.cmp(&b.created),
            By::Updated => a.updated.cmp(&b.updated),
            By::Name => a.name.cmp(b.name),
        };
        order.then_with(|| a.id.cmp(b.id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Thing(Id, &'static str, i64, i64);

    fn names(query: &str) -> Vec<&'static str> {
        let things = [
            Thing(Id::named("1"), "b", 1, 9),
            Thing(Id::named("2"), "c", 2, 7),
            Thing(Id::named("3"), "a", 3, 8),
        ];
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut query = Query::new(query);
        let words = [
            "created_at_asc",
            "created_at_desc",
            "updated_at_asc",
            "name_asc",
            "name_desc",
        ];
        let sorting = Sorting::read(&mut query, "order_by", &words);
        query.finish().unwrap();
        let mut rows: Vec<&Thing> = things.iter().collect();
        sorting.sort(&mut rows, |thing| Stamps {
            created: at(thing.2),
            updated: at(thing.3),
            name: thing.1,
            ..Stamps::of(&thing.0)
        });
        rows.iter().map(|thing| thing.1).collect()
    }

    #[test]
    fn a_list_comes_in_the_order_it_was_asked_for() {
        assert_eq!(names(""), ["b", "c", "a"]);
        assert_eq!(names("order_by=created_at_desc"), ["a", "c", "b"]);
        assert_eq!(names("order_by=updated_at_asc"), ["c", "a", "b"]);
        assert_eq!(names("order_by=name_asc"), ["a", "b", "c"]);
        assert_eq!(names("order_by=name_desc"), ["c", "b", "a"]);
    }

    #[test]
    fn rows_of_one_moment_keep_an_order_and_it_turns_round_too() {
        let (a, b) = (Id::named("a"), Id::named("b"));
        let sorted = |descending| {
            let by = By::Created;
            let mut ids = [&a, &b];
            Sorting { by, descending }.sort(&mut ids, |id| Stamps::of(id));
            ids
        };
        let [first, second] = sorted(false);
        assert_eq!(sorted(true), [second, first]);
    }
}
