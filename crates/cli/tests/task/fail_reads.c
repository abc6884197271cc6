/* Lets each open of a file whose path contains FAIL_BELOW fail, as on a broken disk, while there is
 * a file FAIL_IF; and each look at a file of a directory whose path contains FAIL_LOOK. */
#include "faults.h"

static int fails_by(const char *variable, const char *path) {
    const char *below = getenv(variable), *condition = getenv("FAIL_IF");
    return below && condition && strstr(path, below) && access(condition, F_OK) == 0;
}

static int before_open(const char *path, int flags) {
    return fails_by("FAIL_BELOW", path) ? EIO : 0;
}

ON_OPEN64(before_open)

/* The standard library of Rust looks at the entries of a directory with `statx`, and first tries
 * whether there is one, without a path. The header's declaration forbids that. */
int looked_at(int directory, const char *path, int flags, unsigned int mask, void *found)
    __asm__("statx");

int looked_at(int directory, const char *path, int flags, unsigned int mask, void *found) {
    REAL_AS(looked_at, "statx");
    char whole[8192];
    if (directory >= 0 && path && path[0] != '/' && path[0] != '\0' &&
        path_of(directory, whole, 4097)) {
        size_t length = strlen(whole);
        snprintf(whole + length, sizeof whole - length, "/%s", path);
        if (fails_by("FAIL_LOOK", whole)) {
            errno = EIO;
            return -1;
        }
    }
    return real(directory, path, flags, mask, found);
}
