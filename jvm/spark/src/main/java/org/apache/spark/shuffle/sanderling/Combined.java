package org.apache.spark.shuffle.sanderling;

import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import org.apache.spark.Aggregator;
import org.apache.spark.ShuffleDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.util.collection.ExternalSorter;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/** Combines and sorts the records that were read, where the dependency requires it. */
final class Combined {
    /** Spark 4.1 added a sixth argument: checksums of rows, which a reader has none of. */
    private static final int ARGUMENTS = 5;

    private Combined() {
    }

    /** Returns the records as the dependency requires; unchanged when it requires nothing. */
    static <K, C> Iterator<Product2<K, C>> of(
            ShuffleDependency<K, ?, C> dependency,
            Iterator<Product2<K, C>> records,
            TaskContext context) {
        Iterator<Product2<K, C>> combined = records;
        if (dependency.aggregator().isDefined()) {
            combined = aggregated(dependency, records, context);
        }
        if (dependency.keyOrdering().isDefined()) {
            ExternalSorter<K, C, C> sorter = sorter(dependency, context);
            combined = sorter.insertAllAndUpdateMetrics(combined);
        }
        return combined;
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    private static <K, C> Iterator<Product2<K, C>> aggregated(
            ShuffleDependency<K, ?, C> dependency,
            Iterator<Product2<K, C>> records,
            TaskContext context) {
        Aggregator aggregator = (Aggregator) dependency.aggregator().get();
        // What was combined before it was written comes as combiners, else as values.
        return dependency.mapSideCombine()
                ? aggregator.combineCombinersByKey((Iterator) records, context)
                : aggregator.combineValuesByKey((Iterator) records, context);
    }

    @SuppressWarnings("unchecked")
    private static <K, C> ExternalSorter<K, C, C> sorter(
            ShuffleDependency<K, ?, C> dependency, TaskContext context) {
        Constructor<?> constructor = ExternalSorter.class.getConstructors()[0];
        Class<?>[] kinds = constructor.getParameterTypes();
        Object[] arguments = new Object[kinds.length];
        arguments[0] = context;
        arguments[1] = Option.empty();
        arguments[2] = Option.empty();
        arguments[3] = dependency.keyOrdering();
        arguments[4] = dependency.serializer();
        if (kinds.length > ARGUMENTS) {
            arguments[ARGUMENTS] = Array.newInstance(kinds[ARGUMENTS].getComponentType(), 0);
        }
        try {
            return (ExternalSorter<K, C, C>) constructor.newInstance(arguments);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("Spark's sorter cannot be made", error);
        }
    }
}
