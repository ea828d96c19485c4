//! Objects that differ in a little from a usual one.

use serde_json::Value;

/// Puts `more` over `into`: objects key by key, lists item by item.
pub fn merge(into: &mut Value, more: Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (Value::Array(into), Value::Array(more)) => {
            for (index, value) in more.into_iter().enumerate() {
                match into.get_mut(index) {
                    Some(item) => merge(item, value),
                    None => into.push(value),
                }
            }
        }
        (into, more) => *into = more,
    }
}
