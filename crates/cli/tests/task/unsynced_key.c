/* Lets no file be made without a name, as on some network file systems, and lets each fsync of the
 * directory SYNC_FAILS fail. */
#include "faults.h"

static int before_open(const char *path, int flags) {
    (void)path;
    return (flags & O_TMPFILE) == O_TMPFILE ? EOPNOTSUPP : 0;
}

ON_OPEN64(before_open)

int fsync(int file) {
    REAL(fsync);
    char path[4097];
    const char *fails = getenv("SYNC_FAILS");
    if (fails && path_of(file, path, sizeof path) && strcmp(path, fails) == 0) {
        errno = EIO;
        return -1;
    }
    return real(file);
}
