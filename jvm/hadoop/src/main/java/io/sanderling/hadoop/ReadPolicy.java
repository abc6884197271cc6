package io.sanderling.hadoop;

/** Is how a file will be read, as far as it is known. */
enum ReadPolicy {
    /** Unknown: the reads themselves show it. */
    ADAPTIVE,
    /** From the start to the end. */
    SEQUENTIAL,
    /** Here and there. */
    RANDOM;

    /**
     * Returns the first known one of a list as Hadoop's {@code fs.option.openfile.read.policy}
     * has it; unknown names are passed over, as its specification requires.
     */
    static ReadPolicy of(String names) {
        for (String name : names.split(",")) {
            switch (name.trim()) {
                case "sequential":
                case "whole-file":
                case "avro":
                case "csv":
                case "json":
                    return SEQUENTIAL;
                case "random":
                case "vector":
                case "columnar":
                case "parquet":
                case "orc":
                case "hbase":
                    return RANDOM;
                case "adaptive":
                case "default":
                    return ADAPTIVE;
                default:
            }
        }
        return ADAPTIVE;
    }
}
