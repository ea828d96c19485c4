//! Account: `/account/v3/projects`, as far as a client needs it to tell its own project from others.

use crate::account::{Action, Project, Resource};
use crate::call::{Answer, Call, Reply};
use crate::page;
use crate::refusal::{Reason, Refusal};
use crate::sorting::{Sorting, Stamps};
use crate::strict::Query;
use crate::world::{Caller, World, id_in_path};
use http::Method;
use serde_json::{Value, json};

/// Answers a call below `/account/v3/`.
pub(crate) fn answer(world: &World, caller: &Caller, rest: &[&str], call: &Call) -> Answer {
    match rest {
        ["projects"] if call.method == Method::GET => list(world, caller, call),
        ["projects", id] if call.method == Method::GET => {
            let id = id_in_path("project_id", id)?;
            world
                .accounts
                .authorise(&caller.key, Action::Read, Resource::Project, Some(&id))?;
            let project = world.accounts.projects.get(&id);
            project
                .map(|project| Reply::ok(wire(project)))
                .ok_or_else(|| Refusal::not_found("project", id.as_str()))
        }
        ["projects"] | ["projects", _] => Err(Refusal::NotEmulated(format!("{} {}", call.method, call.path))),
        _ => Err(Refusal::Route(format!("{} {}", call.method, call.path))),
    }
}

/// GET `/projects`: those of an organisation that the key sees.
fn list(world: &World, caller: &Caller, call: &Call) -> Answer {
    let mut query = Query::new(&call.query);
    let organization = query.id("organization_id");
    if organization.is_none() {
        query.refuse("organization_id", Reason::Required, "cannot be empty");
    }
    let name = query.text("name");
    let ids = query.ids("project_ids");
    let sorting = Sorting::by_age_or_name(&mut query);
    let page = page::last(query, world.settings.page_cap)?;
    crate::account::Accounts::authorise_somewhere(&caller.key, Action::List, Resource::Project)?;
    let mut found: Vec<&Project> = world
        .accounts
        .projects
        .values()
        .filter(|project| {
            caller.key.sees(project)
                && organization.as_ref() == Some(&project.organization_id)
                && name.as_ref().is_none_or(|name| project.name.contains(name.as_str()))
                && (ids.is_empty() || ids.contains(&project.id))
        })
        .collect();
    sorting.sort(&mut found, |project| Stamps {
        created: project.created_at,
        name: &project.name,
        ..Stamps::of(&project.id)
    });
    Ok(page.reply("projects", &found, |project| wire(project)))
}

fn wire(project: &Project) -> Value {
    json!({
        "id": project.id,
        "name": project.name,
        "organization_id": project.organization_id,
        "created_at": project.created_at,
        "updated_at": project.created_at,
        "description": "",
        "qualification": null,
        "status": "active",
    })
}
