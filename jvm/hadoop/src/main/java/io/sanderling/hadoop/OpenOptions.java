package io.sanderling.hadoop;

import java.util.Arrays;
import java.util.Collections;
import java.util.HashSet;
import java.util.Set;

import org.apache.hadoop.fs.impl.OpenFileParameters;

/**
 * Reads the options of {@code openFile}. Those that Hadoop defines are used, except the length and
 * block size that a caller expects.
 */
final class OpenOptions {
    private static final String PREFIX = "fs.option.openfile.";
    private static final String READ_POLICY = PREFIX + "read.policy";

    private static final Set<String> KNOWN = Collections.unmodifiableSet(new HashSet<>(
            Arrays.asList(READ_POLICY, PREFIX + "buffer.size", PREFIX + "length",
                    PREFIX + "split.start", PREFIX + "split.end", PREFIX + "footer.cache",
                    PREFIX + "filestatus", PREFIX + "ec.policy")));

    private OpenOptions() {
    }

    /**
     * Refuses what must be known and is not.
     *
     * @throws IllegalArgumentException that names the option
     */
    static void check(OpenFileParameters parameters) {
        for (String key : parameters.getMandatoryKeys()) {
            if (!KNOWN.contains(key)) {
                throw new IllegalArgumentException("unknown mandatory option " + key);
            }
        }
    }

    /** Returns how the file will be read. */
    static ReadPolicy policy(OpenFileParameters parameters) {
        return ReadPolicy.of(parameters.getOptions().get(READ_POLICY, ""));
    }
}
