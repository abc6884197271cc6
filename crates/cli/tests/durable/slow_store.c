/* A slow store: each read of a file whose path contains SLOW_BELOW takes SLOW_MILLIS longer. */
#include "faults.h"

ssize_t pread64(int file, void *bytes, size_t count, off64_t offset) {
    REAL(pread64);
    const char *below = getenv("SLOW_BELOW"), *millis = getenv("SLOW_MILLIS");
    char path[4096];
    if (below && millis && path_of(file, path, sizeof path) && strstr(path, below)) {
        wait_millis(atol(millis));
    }
    return real(file, bytes, count, offset);
}
