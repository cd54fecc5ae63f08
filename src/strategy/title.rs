//! What a command is called by: the script that an interpreter runs, not the interpreter.

use std::path::Path;

use super::name::is_name;

/// A program that only starts another one, with its options that take the next word.
struct Starter {
    names: &'static [&'static str],
    with_value: &'static [&'static str],
    /// Words of its own that stand before the program (the duration of `timeout`).
    own_words: usize,
}

const STARTERS: &[Starter] = &[
    Starter {
        names: &["env"],
        with_value: &["-u", "--unset", "-C", "--chdir"],
        own_words: 0,
    },
    Starter {
        names: &["nice"],
        with_value: &["-n", "--adjustment"],
        own_words: 0,
    },
    Starter {
        names: &["ionice"],
        with_value: &["-c", "-n"],
        own_words: 0,
    },
    Starter {
        names: &["chrt"],
        with_value: &[],
        own_words: 1,
    },
    Starter {
        names: &["taskset"],
        with_value: &[],
        own_words: 1,
    },
    Starter {
        names: &["timeout"],
        with_value: &["-k", "--kill-after", "-s", "--signal"],
        own_words: 1,
    },
    Starter {
        names: &["stdbuf"],
        with_value: &["-i", "-o", "-e"],
        own_words: 0,
    },
    Starter {
        names: &["sudo", "doas"],
        with_value: &["-u", "-g", "-C"],
        own_words: 0,
    },
    Starter {
        names: &["exec"],
        with_value: &["-a"],
        own_words: 0,
    },
    Starter {
        names: &["nohup", "setsid", "time", "command"],
        with_value: &[],
        own_words: 0,
    },
];

/// A program that runs a script named on its command line.
struct Interpreter {
    /// Its names; a version may follow (`python3.11`).
    names: &'static [&'static str],
    /// Options that take the next word.
    with_value: &'static [&'static str],
    /// Options whose value is the script, or what stands for it.
    script: &'static [&'static str],
    /// Options whose value is the program text itself: there is no script then.
    text: &'static [&'static str],
    /// A word before the script (`deno run`).
    verb: Option<&'static str>,
}

const INTERPRETERS: &[Interpreter] = &[
    Interpreter {
        names: &["python", "pypy"],
        with_value: &["-W", "-X", "--check-hash-based-pycs"],
        script: &["-m"],
        text: &["-c"],
        verb: None,
    },
    Interpreter {
        names: &["node", "nodejs", "tsx", "ts-node"],
        with_value: &[
            "-r",
            "--require",
            "--import",
            "--loader",
            "--experimental-loader",
            "-C",
            "--conditions",
        ],
        script: &[],
        text: &["-e", "--eval", "-p", "--print"],
        verb: None,
    },
    Interpreter {
        names: &["php"],
        with_value: &["-d", "--define", "-c", "--php-ini", "-z", "--zend-extension"],
        script: &["-f", "--file", "-F", "--process-file"],
        text: &["-r", "--run", "-R", "--process-code"],
        verb: None,
    },
    Interpreter {
        names: &["ruby", "jruby"],
        with_value: &["-I", "-r", "-C", "-E"],
        script: &[],
        text: &["-e"],
        verb: None,
    },
    Interpreter {
        names: &["perl", "lua", "luajit", "raku"],
        with_value: &["-I", "-l"],
        script: &[],
        text: &["-e", "-E"],
        verb: None,
    },
    Interpreter {
        names: &["java"],
        with_value: &[
            "-cp",
            "-classpath",
            "--class-path",
            "-p",
            "--module-path",
            "--add-modules",
        ],
        script: &["-jar", "-m", "--module"],
        text: &[],
        verb: None,
    },
    Interpreter {
        names: &["deno", "bun", "uv", "poetry", "pipenv", "dotnet"],
        with_value: &["--config", "-c", "--import-map"],
        script: &[],
        text: &["-e", "--eval"],
        verb: Some("run"),
    },
];

/// Shells, which also take a whole command line in one word (`-c`).
const SHELLS: &[&str] = &["sh", "bash", "dash", "zsh", "ksh", "ash"];
/// Their options that take the next word.
const SHELL_VALUES: &[&str] = &["-o", "+o", "-O", "+O", "--rcfile", "--init-file"];

/// Words of a shell that are no program of the user's.
const OF_SHELL: &[&str] = &[
    "", ":", ".", "[", "{", "}", "(", ")", "!", "break", "case", "cd", "continue", "do", "done", "echo",
    "elif", "else", "esac", "eval", "exit", "export", "false", "fi", "for", "function", "if", "local",
    "printf", "read", "return", "set", "shift", "sleep", "source", "test", "then", "trap", "true", "ulimit",
    "umask", "unset", "until", "wait", "while",
];

/// How deep a command within a command is looked into.
const DEEPEST: usize = 8;

/// The name of a command, as the client of a strategy may be called: the file of its script or program, in
/// lower case; `program` where that cannot be a name.
pub(super) fn title(argv: &[&str]) -> String {
    let file = script(argv, DEEPEST);
    [file.as_deref(), argv.first().copied()]
        .into_iter()
        .flatten()
        .map(|word| file_name(word).to_lowercase())
        .find(|name| is_name(name))
        .unwrap_or_else(|| "program".to_owned())
}

fn file_name(word: &str) -> &str {
    Path::new(word)
        .file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// Whether a program is one of these, with a version behind its name or not.
fn is_one_of(program: &str, names: &[&str]) -> bool {
    let name = program.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    names.contains(&name) || names.contains(&program)
}

/// The word that names what a command runs; `None` where it has none.
fn script(argv: &[&str], deep: usize) -> Option<String> {
    let (first, rest) = argv.split_first()?;
    let program = file_name(first);
    let Some(deep) = deep.checked_sub(1) else {
        return Some(program.to_owned());
    };
    let within = if let Some(starter) = STARTERS.iter().find(|one| one.names.contains(&program)) {
        let mut words = rest;
        words = after_options(words, starter.with_value);
        words = words.get(starter.own_words..).unwrap_or_default();
        while words.first().is_some_and(|word| is_assignment(word)) {
            words = &words[1..];
        }
        script(words, deep)
    } else if is_one_of(program, SHELLS) {
        of_shell(rest, deep)
    } else if let Some(known) = INTERPRETERS.iter().find(|one| is_one_of(program, one.names)) {
        of_interpreter(known, rest, deep)
    } else {
        None
    };
    Some(within.unwrap_or_else(|| program.to_owned()))
}

/// `A=1`
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty()
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric())
    })
}

/// What follows the options.
fn after_options<'a, 'b>(mut words: &'a [&'b str], with_value: &[&str]) -> &'a [&'b str] {
    while let Some((word, rest)) = words.split_first() {
        if *word == "--" {
            return rest;
        }
        if !word.starts_with(['-', '+']) || *word == "-" {
            return words;
        }
        words = if with_value.contains(word) {
            rest.get(1..).unwrap_or_default()
        } else {
            rest
        };
    }
    words
}

fn of_interpreter(known: &Interpreter, words: &[&str], deep: usize) -> Option<String> {
    let mut words = words;
    loop {
        let (word, rest) = words.split_first()?;
        if known.text.contains(word) {
            return None;
        }
        if known.script.contains(word) {
            return rest.first().map(|script| (*script).to_owned());
        }
        if known.verb == Some(*word) {
            // `uv run python3 worker.py` has a program of its own behind it.
            return script(after_options(rest, known.with_value), deep);
        }
        if *word == "--" {
            return rest.first().map(|script| (*script).to_owned());
        }
        if *word == "-" {
            return None;
        }
        if !word.starts_with('-') {
            return Some((*word).to_owned());
        }
        words = if known.with_value.contains(word) {
            rest.get(1..)?
        } else {
            rest
        };
    }
}

fn of_shell(words: &[&str], deep: usize) -> Option<String> {
    let mut words = words;
    loop {
        let (word, rest) = words.split_first()?;
        // `-c` may stand among others in one word (`-ec`).
        if word.starts_with('-') && !word.starts_with("--") && word.ends_with('c') {
            return of_command_line(rest.first()?, deep);
        }
        if *word == "--" {
            return rest.first().map(|script| (*script).to_owned());
        }
        if !word.starts_with(['-', '+']) {
            return Some((*word).to_owned());
        }
        words = if SHELL_VALUES.contains(word) {
            rest.get(1..)?
        } else {
            rest
        };
    }
}

/// The program of a shell's command line: the one that takes the shell's place, else the first script, or program
/// by its path, or the only one there is.
fn of_command_line(line: &str, deep: usize) -> Option<String> {
    let mut first = None;
    let commands: Vec<Vec<String>> = commands(line).into_iter().filter(|one| !one.is_empty()).collect();
    for command in &commands {
        let words: Vec<&str> = command.iter().map(String::as_str).collect();
        let mut words = words.as_slice();
        while words
            .first()
            .is_some_and(|word| is_assignment(word) || matches!(*word, "do" | "then" | "else"))
        {
            words = &words[1..];
        }
        let Some(program) = words.first() else { continue };
        if OF_SHELL.contains(program) || program.contains(['$', '`', '<', '>', '(', ')']) {
            continue;
        }
        if *program == "exec" && words.get(1).is_some_and(|word| !word.contains(['<', '>', '$'])) {
            return script(words, deep);
        }
        if *program != "exec" {
            let says_more =
                |found: &String| commands.len() == 1 || program.contains('/') || found != file_name(program);
            first = first.or_else(|| script(words, deep).filter(says_more));
        }
    }
    first
}

/// The simple commands of a line, each in words without their quotes. Good enough for a name: nothing is
/// expanded.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some('\''), _) => word.get_or_insert_default().push(c),
            (_, '\\') => word.get_or_insert_default().extend(chars.next()),
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, ';' | '&' | '|' | '\n') => {
                commands
                    .last_mut()
                    .into_iter()
                    .for_each(|last| last.extend(word.take()));
                commands.push(Vec::new());
            }
            (None, _) if c.is_whitespace() => {
                commands
                    .last_mut()
                    .into_iter()
                    .for_each(|last| last.extend(word.take()));
            }
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    commands
        .last_mut()
        .into_iter()
        .for_each(|last| last.extend(word.take()));
    commands
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> String {
        let words: Vec<String> = commands(line).concat();
        title(&words.iter().map(String::as_str).collect::<Vec<_>>())
    }

    #[test]
    fn a_script_names_the_row_and_not_its_interpreter() {
        for (line, name) in [
            ("python3 worker.py", "worker.py"),
            (
                "/usr/bin/python3.11 -u -X dev /opt/My.Worker.py --fast x.py",
                "my.worker.py",
            ),
            ("python3 -m pkg.worker", "pkg.worker"),
            ("node --require ./hook.js --inspect x.js", "x.js"),
            ("php -d a=b x.php", "x.php"),
            ("php -da=b -f x.php", "x.php"),
            ("php8.2 -- x.php", "x.php"),
            ("env A=1 python3 w.py", "w.py"),
            (
                "env -u HOME -i A=1 B=2 nice -n 5 timeout -k 1 30 ruby -I lib w.rb",
                "w.rb",
            ),
            ("taskset 0x1 perl w.pl", "w.pl"),
            ("java -cp a:b com.example.Worker", "com.example.worker"),
            ("java -jar /opt/worker.jar", "worker.jar"),
            ("deno run --allow-net w.ts", "w.ts"),
            ("uv run python3 w.py", "w.py"),
            ("bash worker.sh", "worker.sh"),
            ("bash -eu -o pipefail worker.sh", "worker.sh"),
            ("./my-client", "my-client"),
        ] {
            assert_eq!(of(line), name, "{line}");
        }
    }

    #[test]
    fn a_command_line_of_a_shell_is_looked_into() {
        for (line, name) in [
            ("cd /opt && exec python3 'my worker.py' --a", "bash"),
            ("cd /opt && exec python3 worker.py --a", "worker.py"),
            ("A=1 B='x y' node w.js | tee log", "w.js"),
            (
                "export A=1; sleep 1; ./prepare; exec env B=2 php -d x=y w.php",
                "w.php",
            ),
            ("bash -c \"python3 w.py\"", "w.py"),
            ("printf 'ready\\n'; read go; echo done", "bash"),
            ("\"$PYTHON\" w.py", "bash"),
            ("exec 3<&1; ./worker", "worker"),
            ("my-client --fast", "my-client"),
            ("kill -9 $$; true", "bash"),
            ("", "bash"),
        ] {
            assert_eq!(title(&["bash", "-c", line]), name, "{line}");
        }
        assert_eq!(title(&["sh", "-ec", "exec ./w.sh", "sh"]), "w.sh");
    }

    #[test]
    fn what_has_no_script_is_named_by_its_program() {
        for line in ["python3", "python3 -c 'print(1)'", "python3 -", "python3 -W"] {
            assert_eq!(of(line), "python3", "{line}");
        }
        for (line, name) in [
            ("php -r 'echo 1;'", "php"),
            ("node -e 1", "node"),
            ("env", "env"),
            ("env A=1", "env"),
            ("timeout", "timeout"),
            ("bash -o", "bash"),
        ] {
            assert_eq!(of(line), name, "{line}");
        }
        assert_eq!(title(&["/opt/a b/c*"]), "program");
        assert_eq!(title(&[]), "program");
        // However deep it is nested, it ends.
        assert_eq!(title(&vec!["env"; 10_000]), "env");
    }
}
