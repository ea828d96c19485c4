//! What GitHub checks about the JWT of an App, and what it says.

use crate::key::PublicKey;
use crate::refusal::Refusal;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::Timestamp;
use serde_json::Value;

/// The longest life of a JWT.
const LONGEST: i64 = 600;

const UNREADABLE: &str = "A JSON web token could not be decoded";

fn refused(message: &str) -> Refusal {
    Refusal::new(401, message)
}

/// The App that speaks, if the token is good now.
pub(crate) fn check<'a>(
    token: &str,
    now: Timestamp,
    keys: impl Fn(u64) -> Option<&'a [PublicKey]>,
) -> Result<u64, Refusal> {
    let (message, signature) = token.rsplit_once('.').ok_or_else(|| refused(UNREADABLE))?;
    let (head, claims) = message.split_once('.').ok_or_else(|| refused(UNREADABLE))?;
    let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| refused(UNREADABLE))?;
    let head = part(head)?;
    if head.get("alg").and_then(Value::as_str) != Some("RS256") {
        return Err(refused(UNREADABLE));
    }
    let claims = part(claims)?;
    let claimed = match claims.get("iss") {
        None => return Err(refused("Missing 'issuer' claim ('iss') in assertion")),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    let app = claimed.ok_or_else(|| refused("'Issuer' claim ('iss') must be an Integer"))?;
    let keys = keys(app).ok_or_else(|| Refusal::new(404, "Integration not found"))?;
    if !keys.iter().any(|key| key.verifies(message.as_bytes(), &signature)) {
        return Err(refused(UNREADABLE));
    }
    let now = now.as_second();
    let expires = match claims.get("exp") {
        None => return Err(refused("Missing 'expiration time' claim ('exp') in assertion")),
        Some(time) => time.as_i64().filter(|time| *time > now).ok_or_else(|| {
            refused(
                "'Expiration time' claim ('exp') must be a numeric value representing the future time at which the assertion expires",
            )
        })?,
    };
    if expires > now.saturating_add(LONGEST) {
        return Err(refused("'Expiration time' claim ('exp') is too far in the future"));
    }
    match claims.get("iat").map(Value::as_i64) {
        None => Err(refused("Missing 'issued at' claim ('iat') in assertion")),
        Some(Some(issued)) if issued <= now => Ok(app),
        Some(_) => Err(refused(
            "'Issued at' claim ('iat') must be an Integer representing the time that the assertion was issued",
        )),
    }
}

fn part(text: &str) -> Result<Value, Refusal> {
    let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| refused(UNREADABLE))?;
    serde_json::from_slice(&bytes).map_err(|_| refused(UNREADABLE))
}
