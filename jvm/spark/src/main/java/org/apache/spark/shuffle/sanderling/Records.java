package org.apache.spark.shuffle.sanderling;

import java.io.IOException;
import org.apache.spark.TaskContext;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.serializer.SerializerManager;
import org.apache.spark.shuffle.ShuffleReadMetricsReporter;
import scala.Product2;
import scala.Tuple2;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Iterates over the records of all fetched partitions. */
final class Records<K, C> extends AbstractIterator<Product2<K, C>> {
    private final Fetcher fetcher;
    private final SerializerManager serializers;
    private final SerializerInstance serializer;
    private final ShuffleReadMetricsReporter metrics;
    private final TaskContext context;
    private Iterator<Tuple2<Object, Object>> current;

    Records(
            Fetcher fetcher,
            SerializerManager serializers,
            SerializerInstance serializer,
            ShuffleReadMetricsReporter metrics,
            TaskContext context) {
        this.fetcher = fetcher;
        this.serializers = serializers;
        this.serializer = serializer;
        this.metrics = metrics;
        this.context = context;
    }

    @Override
    public boolean hasNext() {
        try {
            while (current == null || !current.hasNext()) {
                if (!nextPart()) {
                    return false;
                }
            }
            return true;
        } catch (Exception error) {
            throw failed(error);
        }
    }

    @Override
    @SuppressWarnings("unchecked")
    public Product2<K, C> next() {
        hasNext();
        metrics.incRecordsRead(1);
        try {
            return (Product2<K, C>) (Product2<?, ?>) current.next();
        } catch (Exception error) {
            throw failed(error);
        }
    }

    /** Throws an error of a record, or if its bytes are wrong, one that makes Spark rerun a map. */
    private RuntimeException failed(Exception error) {
        try {
            fetcher.verifyStreamed();
        } catch (IOException other) {
            error.addSuppressed(other);
        }
        throw Sneaky.throwing(error);
    }

    private boolean nextPart() {
        try {
            Fetcher.Part part = fetcher.next();
            if (part == null) {
                context.taskMetrics().mergeShuffleReadMetrics();
                return false;
            }
            current = serializer
                    .deserializeStream(serializers.wrapStream(part.block, part.stream))
                    .asKeyValueIterator();
            return true;
        } catch (IOException error) {
            throw Sneaky.throwing(error);
        }
    }
}
