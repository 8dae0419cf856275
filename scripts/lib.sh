# What scripts/quickstart and scripts/test share: the virtual environment .venv in the checkout. Source it from the checkout's root.

# Packages are installed without byte code, since most of pandas, pyarrow and altair is never imported: what is imported keeps it.
unset PYTHONDONTWRITEBYTECODE

say() { printf '%s\n' "$*" >&2; }

fail() { say "error: $*"; exit 1; }

# The first Python that can make a virtual environment for rlmbench; $PYTHON, when set, is the only candidate.
find_python() {
    local candidate
    for candidate in ${PYTHON:-python3 python3.13 python3.12 python3.11}; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    fail "no Python 3.11 or newer with venv (tried: ${PYTHON:-python3 python3.13 python3.12 python3.11});" \
        "install one (Debian, Ubuntu: apt-get install python3 python3-venv; Fedora: dnf install python3) or name one: PYTHON=/path/to/python3.12 $0"
}

# A command's output in, a sign of life out: pip's phase when it changes (at most every 2 s), and something at least every 5 s.
sign_of_life() {
    local label=$1 line phase="starting" shown=$SECONDS due status
    say "$label · $phase · $SECONDS s"
    while true; do
        status=0
        IFS= read -r -t 1 line || status=$?
        ((status == 0 || status > 128)) || return 0 # above 128 it is the time-out, else the end
        due=4
        if ((status == 0)) && [[ $line =~ ^\ *((Collecting|Downloading|Using\ cached|Building|Installing)\ [^\;:\(]*) ]]; then
            phase=${BASH_REMATCH[1]%% }
            due=2
        fi
        if ((SECONDS - shown >= due)); then
            say "$label · $phase · $SECONDS s"
            shown=$SECONDS
        fi
    done
}

# pip_install LABEL ARGUMENT...: into .venv, with the user's own pip configuration. The whole output goes to .venv/pip.log.
pip_install() {
    local label=$1
    shift
    .venv/bin/python -m pip install --disable-pip-version-check --no-input --no-compile "$@" 2>&1 </dev/null | tee -a .venv/pip.log | sign_of_life "$label"
}

# Where `.venv` holds what `pyproject.toml` and the lock ask for now; a checkout that has moved needs its links made again.
stamp() { (cat pyproject.toml requirements/lock.txt && pwd) | sha256sum | cut -d ' ' -f 1; }

is_installed() { # is_installed "MODE ...": with one of these modes
    local mode hash
    read -r mode hash 2>/dev/null <.venv/rlmbench-stamp || return 1
    [[ " $1 " == *" $mode "* && $hash == "$(stamp)" ]] && .venv/bin/python -c "" 2>/dev/null
}

mark_installed() { echo "$1 $(stamp)" >.venv/rlmbench-stamp; }

make_venv() {
    if ! .venv/bin/python -m pip --version >/dev/null 2>&1; then
        local python
        python=$(find_python)
        "$python" -m venv --clear .venv 2>&1 | sign_of_life "making .venv with $("$python" --version)" || fail "cannot make .venv; '$python -m venv --clear .venv' says why"
    fi
    : >.venv/pip.log
}

pip_failed() {
    local first
    first=$(grep -m 1 -i '^ *error' .venv/pip.log || tail -n 1 .venv/pip.log)
    fail "$1: ${first:0:300} (all of pip's output: $PWD/.venv/pip.log)"
}
