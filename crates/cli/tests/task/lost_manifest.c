/* While there is a file FAIL_IF, lets the first sync of a directory that ends with /generations fail
 * after its manifest has its name, as if the answer of a backend were lost. Manifests after that one
 * get no name. */
#include "faults.h"

static int is_lost;

static int fails(void) {
    const char *condition = getenv("FAIL_IF");
    return condition && access(condition, F_OK) == 0;
}

int fsync(int file) {
    REAL(fsync);
    char path[4096];
    if (fails() && path_of(file, path, sizeof path) && ends_with(path, "/generations") &&
        !__sync_lock_test_and_set(&is_lost, 1)) {
        errno = EIO;
        return -1;
    }
    return real(file);
}

int linkat(int from_directory, const char *from, int to_directory, const char *to, int flags) {
    REAL(linkat);
    if (fails() && strstr(to, "/generations/") && __sync_fetch_and_add(&is_lost, 0)) {
        errno = EIO;
        return -1;
    }
    return real(from_directory, from, to_directory, to, flags);
}
