/* A slow disk: the first write to each file whose path contains SLOW_BELOW takes SLOW_SECONDS. */
#include "faults.h"

static int is_slow(int file) {
    const char *below = getenv("SLOW_BELOW");
    char path[4096];
    if (!below || lseek(file, 0, SEEK_CUR) != 0 || !path_of(file, path, sizeof path)) return 0;
    return strstr(path, below) != NULL;
}

ssize_t write(int file, const void *bytes, size_t count) {
    REAL(write);
    const char *seconds = getenv("SLOW_SECONDS");
    if (seconds && is_slow(file)) wait_millis(atoi(seconds) * 1000L);
    return real(file, bytes, count);
}
