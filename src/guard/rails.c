/* SPDX-License-Identifier: Apache-2.0 */
/* Shipped rules, in the language of all rules. Examples of what fits and what does not are in rails_test.c. */
#include "guard/rules.h"

#define SHELLS "[\"sh\",\"bash\",\"dash\",\"zsh\",\"ksh\",\"ash\",\"fish\"]"
#define RUNNERS                                                                                                        \
    "[\"sh\",\"bash\",\"dash\",\"zsh\",\"ksh\",\"ash\",\"fish\",\"python*\",\"perl\",\"ruby\",\"node\",\"php\",\"source\",\".\",\"eval\"]"
#define GETTERS "[\"curl\",\"wget\",\"aria2c\",\"axel\",\"lwp-download\",\"fetch\",\"http\",\"https\",\"xh\"]"
#define SECRETS                                                                                                                                        \
    "[\"~/.ssh/*\",\"~/.aws/*\",\"~/.azure/*\",\"~/.gnupg/*\",\"~/.kube/*\",\"~/.config/gcloud/*\",\"~/.config/gh/*\","                                \
    "\"~/.docker/config.json\",\"~/.netrc\",\"~/.pgpass\",\"~/.npmrc\",\"~/.pypirc\",\"~/.git-credentials\",\"~/.vault-token\","                       \
    "\"~/.cargo/credentials*\",\"/etc/shadow*\",\"/etc/gshadow*\",\"id_rsa\",\"id_ed25519\",\"id_ecdsa\",\".env\",\".env.local\",\".env.production\"," \
    "\"/proc/*/environ\"]"
#define DOTFILES                                                                                                                                           \
    "[\"~/.bashrc\",\"~/.bash_profile\",\"~/.bash_login\",\"~/.profile\",\"~/.zshrc\",\"~/.zprofile\",\"~/.zshenv\",\"~/.gitconfig\",\"~/.config/git/*\"," \
    "\".git/hooks/*\",\".git/config\",\"~/.claude/*\",\"~/.codex/*\",\".mcp.json\",\"~/.ssh/authorized_keys\"]"
#define STARTS                                                                                                                                         \
    "[\"/etc/cron*\",\"/var/spool/cron/*\",\"/etc/systemd/system/*\",\"/lib/systemd/system/*\",\"/usr/lib/systemd/system/*\",\"~/.config/systemd/*\"," \
    "\"~/.config/autostart/*\",\"/etc/init.d/*\",\"/etc/rc.local\",\"/etc/profile\",\"/etc/profile.d/*\",\"/etc/bash.bashrc\",\"/etc/ld.so.preload\"," \
    "\"/etc/sudoers*\",\"/etc/passwd\"]"

#define TREES                                                                                                                                                                                  \
    "[\"/\",\"/[*]\",\"/bin\",\"/bin/*\",\"/boot\",\"/etc\",\"/etc/*\",\"/home\",\"/home/\",\"/home/[*]\",\"/home/user\",\"/home/user/\",\"/home/user/[*]\",\"/lib*\",\"/opt\","               \
    "\"/root\",\"/root/\",\"/root/[*]\",\"/sbin*\",\"/srv\",\"/usr\",\"/usr/\",\"/usr/[*]\",\"/usr/bin*\",\"/usr/lib*\",\"/var\",\"/var/\",\"/var/[*]\",\"/mnt\",\"/mnt/[*]\",\"/workspace\"," \
    "\"/workspace/\",\"/workspace/[*]\",\"~\",\"~/\",\"~/[*]\",\".\",\"./\",\"..\",\"../\",\"../..*\",\"[*]\",\"./[*]\",\".[*]\",\"$PWD*\"]"

const struct rail rails[] = {
    {"destroying-work", "work in a repository that nobody has elsewhere is thrown away",
     "[{\"argv\":[\"git\",\"reset\",\"--hard\"]},"
     "{\"argv\":[\"git\",\"clean\",[\"-*f*\",\"--force\"]]},"
     "{\"argv\":[\"git\",\"checkout\",[\"--\",\".\",\"-f\",\"--force\"]]},"
     "{\"argv\":[\"git\",\"restore\",[\".\",\":/\"]]},"
     "{\"argv\":[\"git\",\"stash\",[\"drop\",\"clear\"]]},"
     "{\"argv\":[\"git\",\"branch\",[\"-D\",\"-*D*\"]]},"
     "{\"argv\":[\"git\",\"reflog\",\"expire\"]},"
     "{\"argv\":[\"git\",\"update-ref\",\"-d\"]},"
     "{\"argv\":[\"rm\",[\"-*r*\",\"-*R*\",\"--recursive\"],[\".git\",\"*/.git\",\".git/*\",\"*/.git/*\"]]},"
     "{\"argv\":[[\"dropdb\",\"mkfs*\",\"wipefs\",\"blkdiscard\"]]},"
     "{\"argv\":[[\"psql\",\"mysql\",\"mariadb\",\"sqlite3\",\"cockroach\"],[\"*[Dd][Rr][Oo][Pp] [Tt][Aa][Bb][Ll][Ee]*\",\"*[Dd][Rr][Oo][Pp] [Dd]*\","
     "\"*[Dd][Rr][Oo][Pp] [Ss]*\",\"*[Tt][Rr][Uu][Nn][Cc][Aa][Tt][Ee] *\"]]},"
     "{\"argv\":[[\"terraform\",\"tofu\",\"pulumi\"],\"destroy\"]},"
     "{\"argv\":[\"kubectl\",\"delete\",[\"ns\",\"namespace\",\"namespaces\",\"pv\",\"pvc\",\"--all\"]]}]",
     RISK_HIGH},
    {"credentials", "files that hold keys and tokens are read, and files that shells and tools obey are written",
     "[{\"path\":" SECRETS "},"
     "{\"path\":" DOTFILES ",\"access\":\"write\"},"
     "{\"argv\":[\"git\",\"config\",\"--global\",[\"core.*\",\"credential.*\",\"alias.*\",\"url.*\",\"include*\"]]},"
     "{\"argv\":[\"security\",[\"find-generic-password\",\"dump-keychain\"]]},"
     "{\"argv\":[\"aws\",\"configure\",[\"get\",\"export-credentials\"]]},"
     "{\"argv\":[\"gh\",\"auth\",\"token\"]},"
     "{\"argv\":[\"gcloud\",\"auth\",[\"print-*\"]]}]",
     RISK_HIGH},
    {"download-and-run", "a program comes from the network and runs at once",
     "[{\"argv\":[" GETTERS "],\"feeds\":" RUNNERS "},"
     "{\"argv\":[" GETTERS "],\"runs_output\":true},"
     "{\"argv\":[[\"nc\",\"ncat\",\"socat\",\"telnet\"]],\"feeds\":" SHELLS "},"
     "{\"argv\":[[\"nc\",\"ncat\"],[\"-e\",\"-c\",\"--exec\",\"--sh-exec\",\"-*e\"]]},"
     "{\"argv\":[[\"base64\",\"base32\",\"xxd\",\"openssl\",\"gunzip\",\"zcat\"]],\"feeds\":" SHELLS "},"
     "{\"path\":[\"/dev/tcp/*\",\"/dev/udp/*\"]}]",
     RISK_HIGH},
    {"persistence", "something is made to run again later, or with more rights",
     "[{\"path\":" STARTS ",\"access\":\"write\"},"
     "{\"argv\":[\"crontab\",[\"-\",\"-e\",\"-r\",\"[!-]*\"]]},"
     "{\"argv\":[[\"at\",\"batch\"]]},"
     "{\"argv\":[\"systemctl\",[\"enable\",\"reenable\",\"link\"]]},"
     "{\"argv\":[\"chmod\",[\"u+s*\",\"*+s\",\"[2467][0-7][0-7][0-7]\"]]},"
     "{\"argv\":[\"setcap\"]},"
     "{\"argv\":[[\"useradd\",\"adduser\",\"usermod\",\"visudo\",\"chpasswd\"]]},"
     "{\"argv\":[\"ssh-copy-id\"]}]",
     RISK_HIGH},
    {"crypto-mining", "the machine's time is spent on a coin",
     "[{\"argv\":[[\"xmrig*\",\"minerd\",\"cpuminer*\",\"ethminer\",\"t-rex\",\"lolMiner\",\"nbminer\",\"phoenixminer\",\"cgminer\",\"bfgminer\",\"xmr-stak*\",\"srbminer*\"]]},"
     "{\"argv\":[\"*\",[\"*stratum+tcp://*\",\"*stratum+ssl://*\",\"*stratum+tls://*\",\"*stratum://*\"]]},"
     "{\"argv\":[\"*\",[\"--coin=*\",\"--donate-level*\",\"--randomx*\"]]},"
     "{\"host\":[\"*.nanopool.org\",\"*.minexmr.com\",\"*.supportxmr.com\",\"*.moneroocean.stream\",\"*.nicehash.com\",\"*.2miners.com\",\"*.f2pool.com\",\"*.hashvault.pro\"]}]",
     RISK_HIGH},
    {"force-push", "history on a server is replaced",
     "[{\"argv\":[\"git\",\"push\",[\"-f\",\"-*f\",\"--force\",\"--force-with-lease*\",\"--mirror\",\"--prune\",\"+*\"]]},"
     "{\"argv\":[\"git\",\"push\",[\"--delete\",\"-d\",\":*\"]]}]",
     RISK_MEDIUM},
    {"mass-deletion", "many files at once are removed or overwritten",
     "[{\"argv\":[\"rm\",[\"-*r*\",\"-*R*\",\"--recursive\"]," TREES "]},"
     "{\"argv\":[\"rm\",\"--no-preserve-root\"]},"
     "{\"argv\":[\"find\",[\"/\",\"~\",\"/home\",\"/home/user\",\"/root\",\"/etc\",\"/usr\",\"/var\"],\"-delete\"]},"
     "{\"argv\":[\"find\",\"-exec*\",[\"rm\",\"shred\"],[\"-*r*\",\"-*R*\"]]},"
     "{\"argv\":[[\"xargs\",\"parallel\"],\"rm\",[\"-*r*\",\"-*R*\"]]},"
     "{\"argv\":[\"shred\"]},"
     "{\"argv\":[\"dd\",\"of=/dev/*\"]},"
     "{\"argv\":[\"rsync\",\"--delete*\"]},"
     "{\"kind\":\"file.remove\",\"path\":[\"/\",\"/home\",\"/root\",\"/etc\",\"/usr\",\"/var\",\"~\",\".\"]},"
     "{\"argv\":[[\"chmod\",\"chown\"],[\"-*R*\",\"--recursive\"]," TREES "]}]",
     RISK_HIGH},
    {0},
};
