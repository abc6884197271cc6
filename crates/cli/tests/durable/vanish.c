/* Moves the directory VANISH_FROM to VANISH_TO before a file or directory is opened whose path ends
 * with VANISH_AT: once, while there is a file VANISH_IF, which is removed then. */
#include "faults.h"
#include <dirent.h>

static int before_open(const char *path, int flags) {
    const char *at = getenv("VANISH_AT"), *condition = getenv("VANISH_IF");
    const char *from = getenv("VANISH_FROM"), *to = getenv("VANISH_TO");
    if (at && condition && from && to && ends_with(path, at) && unlink(condition) == 0) {
        rename(from, to);
    }
    return 0;
}

ON_OPEN64(before_open)

DIR *opendir(const char *path) {
    REAL(opendir);
    before_open(path, 0);
    return real(path);
}
