//! What is owed.

use crate::harness::{Api, MINIS, id_of, order, server, shows};
use russet_sim_scaleway::MicroEuro;
use serde_json::json;
use std::time::Duration;

const MONTH: Duration = Duration::from_hours(730);

#[tokio::test]
async fn what_runs_on_the_bill_is_what_is_owned() {
    let api = Api::start().await;
    let (kept, gone) = (api.ordered("kept").await, api.ordered("gone").await);
    api.advance(Duration::from_hours(30));
    api.delete(server(&gone)).await.ok();
    let bill = api.handle().bill();
    assert_eq!(bill.running().collect::<Vec<_>>(), [&kept]);
    assert_eq!(bill.per_hour, MicroEuro::from_milli(210));
    assert_eq!(bill.lines.len(), 2);
}

#[tokio::test]
async fn a_mini_costs_a_day_at_least_and_then_every_started_hour() {
    let api = Api::start().await;
    let id = api.ordered("a").await;
    assert_eq!(api.handle().bill().total, MicroEuro::from_milli(24 * 210));
    api.advance(Duration::from_hours(24));
    api.delete(server(&id)).await.ok();
    let closed = api.handle().bill();
    assert_eq!(
        (closed.lines[0].hours, closed.total),
        (25, MicroEuro::from_milli(25 * 210))
    );
    api.advance(Duration::from_hours(1000));
    let found = api.handle().bill().total;
    assert_eq!(found, closed.total, "the meter stands still after the deletion");
}

#[tokio::test]
async fn reboots_renames_and_reinstalls_cost_nothing_extra() {
    let api = Api::start().await;
    let id = api.ordered("a").await;
    let before = api.handle().bill();
    api.patch(server(&id), json!({"name": "b"})).await.ok();
    api.post(format!("{}/reinstall", server(&id)), json!({})).await.ok();
    let after = api.handle().bill();
    assert_eq!((before.total, before.lines.len()), (after.total, after.lines.len()));
}

#[tokio::test]
async fn a_monthly_commitment_is_paid_by_the_month_and_renewed() {
    let api = Api::start().await;
    let mut body = order("a");
    body["commitment_type"] = json!("renewed_monthly");
    let made = api.post(MINIS, body).await.ok();
    let id = id_of(&made);
    assert_eq!(api.handle().bill().total, MicroEuro::from_milli(139_000));
    api.advance(Duration::from_hours(729));
    api.delete(server(&id)).await.unmet();
    api.advance(Duration::from_hours(2));
    assert_eq!(api.handle().bill().total, MicroEuro::from_milli(2 * 139_000));
    api.delete(server(&id)).await.unmet();
    api.patch(server(&id), json!({"schedule_deletion": true})).await.ok();
    api.advance(MONTH);
    let bill = api.handle().bill();
    assert_eq!(
        (bill.running().count(), bill.total),
        (0, MicroEuro::from_milli(2 * 139_000))
    );
}

#[tokio::test]
async fn a_cancelled_commitment_goes_on_by_the_hour() {
    let api = Api::start().await;
    let id = api.made(json!({"deed": "add_minis", "name": "m", "age_hours": 0, "commitment": "renewed_monthly"}));
    let commit = |kind: &str| json!({"commitment_type": {"commitment_type": kind}});
    api.patch(server(&id), commit("duration_24h")).await.unmet();
    let shown = api.patch(server(&id), commit("none")).await.ok();
    shows!(shown, {"commitment": {"type": "renewed_monthly", "cancelled": true}});
    api.advance(MONTH);
    assert_eq!(api.server(&id).await["commitment"]["type"], "none");
    assert_eq!(api.handle().bill().per_hour, MicroEuro::from_milli(210));
    api.advance(Duration::from_hours(2));
    assert_eq!(api.handle().bill().total, MicroEuro::from_milli(139_000 + 2 * 210));
    api.delete(server(&id)).await.ok();
    assert_eq!(api.handle().bill().running().count(), 0);
}

#[tokio::test]
async fn an_hourly_server_can_become_a_monthly_one() {
    let api = Api::start().await;
    let id = api.ordered("a").await;
    api.advance(Duration::from_hours(24));
    let body = json!({"commitment_type": {"commitment_type": "renewed_monthly"}});
    api.patch(server(&id), body).await.ok();
    let bill = api.handle().bill();
    assert_eq!(bill.total, MicroEuro::from_milli(25 * 210 + 139_000));
    assert_eq!(bill.lines[0].line.stretches.len(), 2);
}
