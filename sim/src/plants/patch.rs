//! Patches with a planted bug each: what a file says, and applying it.
//!
//! ```text
//! id: 14
//! broken: One synced group in seven is acknowledged without a sync.
//! rules: S2
//! plan: corpus/plans/0001-acknowledged-then-power.plan      (optional)
//! strength: adversarial                                     (optional, honest without)
//! --- a/src/engine/commit.rs
//! +++ b/src/engine/commit.rs
//! @@ ...                                                    a unified diff with little context
//! ```
//!
//! The line numbers of a diff are not looked at: the lines that a hunk replaces must be in the file
//! exactly once. So a patch survives changes elsewhere in its file, and one that could go to two places
//! is refused.

use std::collections::BTreeSet;

use crate::disk::Strength;

/// A planted bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plant {
    /// Its number; the switch has it too.
    pub id: u32,
    /// Its file's name without number and ending.
    pub name: String,
    /// What is broken, in a sentence.
    pub broken: String,
    /// The rules that may catch it.
    pub rules: Vec<String>,
    /// The plan that must fail while it is on.
    pub plan: Option<String>,
    /// How unkind the disk has to be.
    pub strength: Strength,
    /// The changes.
    pub files: Vec<FilePatch>,
}

/// The changes of one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilePatch {
    /// The file, from the project's root.
    pub path: String,
    hunks: Vec<Hunk>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Hunk {
    old: Vec<String>,
    new: Vec<String>,
}

/// Reads the patch file called `file_name`.
///
/// # Errors
/// What is missing or malformed.
pub fn parse(file_name: &str, text: &str) -> Result<Plant, String> {
    let wrong = |what: &str| format!("{file_name}: {what}");
    let split = text.find("--- ").ok_or_else(|| wrong("no diff"))?;
    let (head, diff) = text.split_at(split);
    let field = |name: &str| {
        let prefix = format!("{name}: ");
        let mut lines = head.lines().filter_map(|line| line.strip_prefix(&prefix));
        lines.next().map(str::trim).filter(|text| !text.is_empty())
    };
    let needed = |name: &str| field(name).ok_or_else(|| wrong(&format!("no {name}")));
    let known = ["id", "broken", "rules", "plan", "strength"];
    for line in head.lines() {
        let name = line.split(": ").next().unwrap_or_default();
        if !known.contains(&name) {
            return Err(wrong(&format!("a header line {line:?}")));
        }
    }
    let id: u32 = needed("id")?.parse().map_err(|_| wrong("id"))?;
    let name = file_name
        .strip_prefix(&format!("{id:02}-"))
        .and_then(|rest| rest.strip_suffix(".patch"))
        .ok_or_else(|| wrong("the file's name does not begin with the id"))?;
    let strength = match field("strength") {
        None | Some("honest") => Strength::Honest,
        Some("adversarial") => Strength::Adversarial,
        Some(other) => return Err(wrong(&format!("no strength {other}"))),
    };
    let files = parse_diff(diff).map_err(|what| wrong(&what))?;
    let switch = format!("planted::is({id})");
    let mut added = files.iter().flat_map(|file| &file.hunks);
    if !added.any(|hunk| hunk.new.iter().any(|line| line.contains(&switch))) {
        return Err(wrong("nothing asks for its switch"));
    }
    Ok(Plant {
        id,
        name: name.into(),
        broken: needed("broken")?.into(),
        rules: needed("rules")?.split(' ').map(String::from).collect(),
        plan: field("plan").map(String::from),
        strength,
        files,
    })
}

fn parse_diff(diff: &str) -> Result<Vec<FilePatch>, String> {
    let mut files: Vec<FilePatch> = Vec::new();
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ b/") {
            files.push(FilePatch {
                path: path.into(),
                hunks: Vec::new(),
            });
            continue;
        }
        if line.starts_with("--- ") {
            continue;
        }
        let hunks = &mut files.last_mut().ok_or("a diff without +++")?.hunks;
        if line.starts_with("@@") {
            hunks.push(Hunk::default());
            continue;
        }
        let hunk = hunks.last_mut().ok_or("a line outside a hunk")?;
        let (sign, rest) = line.split_at_checked(1).unwrap_or((" ", ""));
        if matches!(sign, " " | "-") {
            hunk.old.push(rest.into());
        }
        match sign {
            " " | "+" => hunk.new.push(rest.into()),
            "-" => {}
            _ => return Err(format!("the line {line:?}")),
        }
    }
    let empty = |file: &FilePatch| file.hunks.iter().all(|hunk| hunk.old == hunk.new);
    if files.is_empty() || files.iter().any(empty) {
        return Err("a diff that changes nothing".into());
    }
    Ok(files)
}

impl FilePatch {
    /// The file's text with the changes.
    ///
    /// # Errors
    /// A hunk whose lines are not there, or are there twice.
    pub fn apply(&self, text: &str) -> Result<String, String> {
        let mut lines: Vec<&str> = text.lines().collect();
        for (number, hunk) in self.hunks.iter().enumerate() {
            let count = hunk.old.len();
            let mut places = lines
                .windows(count.max(1))
                .enumerate()
                .filter(|(_, window)| window.iter().eq(hunk.old.iter()))
                .map(|(place, _)| place);
            let found = (places.next(), places.next());
            let (Some(place), None) = found else {
                let times = if found.0.is_some() { "twice" } else { "not" };
                let number = number + 1;
                return Err(format!("{}: hunk {number} is {times} there", self.path));
            };
            lines.splice(place..place + count, hunk.new.iter().map(String::as_str));
        }
        Ok(lines.join("\n") + "\n")
    }
}

/// What is wrong with plants taken together.
///
/// # Errors
/// An id that two have.
pub fn check_ids(plants: &[Plant]) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    match plants.iter().find(|plant| !ids.insert(plant.id)) {
        Some(twice) => Err(format!("two plants have the id {}", twice.id)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATCH: &str = "id: 7\nbroken: All.\nrules: S1 S2\n--- a/x.rs\n+++ b/x.rs\n@@ -1,2 +1,2 @@\n \
                         one\n-two\n+if planted::is(7) {}\n";

    #[test]
    fn a_patch_says_what_it_is_and_applies() {
        let plant = parse("07-all.patch", PATCH).expect("whole");
        assert_eq!((plant.id, plant.name.as_str()), (7, "all"));
        assert_eq!(plant.rules, ["S1", "S2"]);
        let text = plant.files[0].apply("zero\none\ntwo\n").expect("fits");
        assert_eq!(text, "zero\none\nif planted::is(7) {}\n");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let plant = parse("07-all.patch", PATCH).expect("whole");
        let refused = |text: &str| plant.files[0].apply(text).expect_err("does not fit");
        assert!(refused("one\nthree\n").contains("is not there"));
        assert!(refused("one\ntwo\none\ntwo\n").contains("is twice there"));
        for (name, text) in [
            ("08-all.patch", PATCH.to_string()),
            ("07-all.patch", PATCH.replace("rules: S1 S2\n", "")),
            ("07-all.patch", PATCH.replace("broken", "what")),
            ("07-all.patch", PATCH.replace("is(7)", "is(8)")),
            ("07-all.patch", PATCH.replace("-two\n+if", " two\n if")),
        ] {
            assert!(parse(name, &text).is_err(), "{name} {text}");
        }
    }
}
