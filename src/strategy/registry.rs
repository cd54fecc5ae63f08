//! All clients.

use std::path::Path;
use std::sync::Arc;

use crate::place::FileError;

use super::client::Client;
use super::script::{self, Folder, ScriptClient, ScriptSource, SourceError};

/// The clients that this systally knows, in the order in which rows are listed.
pub struct Registry {
    clients: Vec<Arc<dyn Client>>,
}

/// Why the clients cannot be listed.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// A list of clients cannot be found or read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// A list of clients is wrong.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Registry {
    /// The Rust clients, the scripts that come with systally, and the user's own.
    ///
    /// # Errors
    /// A list of clients that cannot be read, is wrong, or uses a name that is taken.
    pub fn load(source: &ScriptSource) -> Result<Registry, LoadError> {
        let mut registry = Registry {
            clients: super::rust::clients(&source.executable).map(Arc::from).collect(),
        };
        registry.add(&source.folder()?, None)?;
        if let Some(file) = source.users_file()? {
            let folder = file.parent().unwrap_or(Path::new("/")).to_owned();
            registry.add(&Folder::at(folder), Some(&file))?;
        }
        Ok(registry)
    }

    /// Adds the clients of a file, by default the list of the folder.
    fn add(&mut self, folder: &Folder, file: Option<&Path>) -> Result<(), LoadError> {
        let path = file.map_or_else(|| folder.list(), Path::to_owned);
        for entry in script::parse(&path, &script::read(&path)?)? {
            if self.client(&entry.name).is_some() {
                let message = format!("the name {} is taken by a client of systally", entry.name);
                return Err(entry.place.error(message).into());
            }
            self.clients.push(Arc::new(ScriptClient::new(entry, folder)));
        }
        Ok(())
    }

    /// All clients.
    pub fn clients(&self) -> &[Arc<dyn Client>] {
        &self.clients
    }

    /// The client with this name.
    pub fn client(&self, name: &str) -> Option<&Arc<dyn Client>> {
        self.clients.iter().find(|client| client.name() == name)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::Presence;
    use super::*;
    use std::fs;
    use std::path::PathBuf;

    const LIST: &str = r#"
[[client]]
name = "phpredis"
language = "php"
description = ""
command = ["{dir}/php/x.php", "in={dir}."]
detect = ["sh", "-c", "echo 5.3.7"]
install = "apt-get install php-redis"
transports = ["tcp", "unix"]
[client.modes.pipeline]
description = ""
connect = "once"
pipeline = true
default = true
[client.modes.persistent]
description = ""
connect = "once"
default = true
[client.modes.pconnect]
description = ""
connect = "persistent_per_op"
[client.modes.unsent]
description = ""
connect = "once"
pipeline = true
demonstration = true

[[client]]
name = "tool"
language = "c"
description = ""
command = ["tool"]
detect = ["/nowhere/tool"]
install = "make tool"
transports = ["tcp"]
[client.modes.persistent]
description = ""
connect = "once"
"#;

    /// The Rust clients and two scripts.
    pub(in crate::strategy) fn registry() -> (tempfile::TempDir, Registry) {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("clients.toml"), LIST).unwrap();
        let registry = Registry::load(&source(folder.path(), None)).unwrap();
        (folder, registry)
    }

    fn source(scripts: &Path, clients: Option<PathBuf>) -> ScriptSource {
        ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: Some(scripts.to_owned()),
            clients,
        }
    }

    #[test]
    fn a_script_knows_its_folder_and_whether_it_is_there() {
        let (folder, registry) = registry();
        let phpredis = registry.client("phpredis").unwrap();
        let dir = folder.path().to_str().unwrap();
        assert_eq!(
            phpredis.command(),
            [format!("{dir}/php/x.php").as_str(), &format!("in={dir}.")]
        );
        assert_eq!(
            phpredis.presence(),
            Presence::Ready {
                version: "5.3.7".into()
            }
        );
        assert_eq!(
            registry.client("tool").unwrap().presence(),
            Presence::Missing {
                why: "/nowhere/tool is not installed".into(),
                install: "make tool".into()
            }
        );
        assert_eq!(
            registry.client("raw").unwrap().command(),
            ["/usr/bin/systally", "worker", "raw"]
        );
    }

    #[test]
    fn the_users_file_adds_and_must_not_replace() {
        let (folder, _) = registry();
        let own = folder.path().join("own.toml");
        fs::write(
            &own,
            LIST.replace("phpredis", "mine").replace("\"tool\"", "\"mytool\""),
        )
        .unwrap();
        let registry = Registry::load(&source(folder.path(), Some(own.clone()))).unwrap();
        assert!(registry.client("phpredis").is_some() && registry.client("mine").is_some());

        fs::write(&own, LIST.replace("phpredis", "raw")).unwrap();
        let error = Registry::load(&source(folder.path(), Some(own.clone())))
            .err()
            .unwrap();
        let text = error.to_string();
        assert!(
            text.ends_with("own.toml:3:8: the name raw is taken by a client of systally"),
            "{text}"
        );

        let error = Registry::load(&source(folder.path(), Some("/nowhere.toml".into())))
            .err()
            .unwrap();
        assert!(error.to_string().contains("/nowhere.toml"), "{error}");
    }

    #[test]
    fn the_scripts_that_come_with_systally_load() {
        let own = ScriptSource {
            executable: "/usr/bin/systally".into(),
            scripts: None,
            clients: None,
        };
        let registry = Registry::load(&own).unwrap();
        for name in ["phpredis", "predis"] {
            let client = registry.client(name).unwrap();
            let command = client.command();
            let script = Path::new(command.last().unwrap());
            assert!(script.is_file(), "{}", script.display());
        }
    }
}
