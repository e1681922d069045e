//! The planted bugs, without building any: every patch is whole and fits the sources of today.

use std::path::{Path, PathBuf};

use sealstone_sim::plants::tree;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// What a sweep can report.
fn is_rule(text: &str) -> bool {
    let number = text.strip_prefix('S').and_then(|text| text.parse().ok());
    text == "panic" || number.is_some_and(|number: u32| (1..=22).contains(&number))
}

#[test]
fn every_plant_is_whole() {
    let plants = tree::plants(&root()).expect("every patch parses, every id is there once");
    assert!(plants.len() >= 85, "{} plants", plants.len());
    for plant in &plants {
        let name = &plant.name;
        assert!(plant.rules.iter().all(|rule| is_rule(rule)), "{name}");
        let sentence = plant.broken.ends_with('.') && plant.broken.len() > 20;
        assert!(sentence, "{name}: {}", plant.broken);
        if let Some(plan) = &plant.plan {
            assert!(root().join(plan).is_file(), "{name}: no {plan}");
        }
        let inside = |path: &str| path.starts_with("src/") && path.ends_with(".rs");
        assert!(plant.files.iter().all(|file| inside(&file.path)), "{name}");
    }
}

/// Each alone, and all together: what `sealstone-sim plants` builds.
#[test]
fn every_plant_fits_the_sources() {
    let plants = tree::plants(&root()).expect("patches");
    let texts = tree::planted(&root(), &plants).expect("all apply");
    let switched = |id: u32| {
        let switch = format!("planted::is({id})");
        texts.values().any(|text| text.contains(&switch))
    };
    assert!(plants.iter().all(|plant| switched(plant.id)));
    assert!(texts["Cargo.toml"].contains("members = [\".\", \"sim\"]"));
    assert!(texts.contains_key("src/planted.rs"));
}

/// The engine itself has no switch.
#[test]
fn the_sources_have_no_plant() {
    for (name, text) in tree::sources(&root()).expect("sources") {
        let own = name.starts_with("sim/src/plants/");
        assert!(own || !text.contains("planted::is("), "{name}");
    }
}
