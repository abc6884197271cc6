package org.apache.spark.shuffle.sanderling;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Holds the one logger of the shuffle manager. */
final class Log {
    static final Logger LOG = LoggerFactory.getLogger(SanderlingShuffleManager.class);

    private Log() {
    }
}
