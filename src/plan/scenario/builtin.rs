//! The scenarios that come with systally, in the program itself: an installed binary has them without any
//! file beside it.

/// A scenario that comes with systally.
#[derive(Debug, Clone, Copy)]
pub struct BuiltIn {
    /// What the user types.
    pub name: &'static str,
    /// Its file.
    pub text: &'static str,
}

/// Pairs each name with its file in `fixtures/scenarios`.
macro_rules! scenarios {
    ($($name:literal),* $(,)?) => {
        &[$(BuiltIn {
            name: $name,
            text: include_str!(concat!("../../../fixtures/scenarios/", $name, ".toml")),
        }),*]
    };
}

/// All of them, in the order in which they are listed.
pub const BUILT_IN: &[BuiltIn] = scenarios![
    "forked-connections",
    "php-cache-clients",
    "sharded-set",
    "socket-vs-tcp"
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_of_the_folder_is_built_in() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/scenarios");
        let mut files: Vec<String> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut known: Vec<String> = BUILT_IN.iter().map(|one| format!("{}.toml", one.name)).collect();
        known.sort();
        assert_eq!(files, known);
    }
}
