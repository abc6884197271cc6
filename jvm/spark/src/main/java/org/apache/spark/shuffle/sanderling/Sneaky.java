package org.apache.spark.shuffle.sanderling;

/** Throws Spark's checked exceptions where Scala's interfaces declare none. */
final class Sneaky {
    private Sneaky() {
    }

    /** Throws the exception; declared to return one so that the compiler sees the end. */
    static RuntimeException throwing(Throwable error) {
        throw Sneaky.<RuntimeException>thrown(error);
    }

    @SuppressWarnings("unchecked")
    private static <T extends Throwable> T thrown(Throwable error) throws T {
        throw (T) error;
    }
}
