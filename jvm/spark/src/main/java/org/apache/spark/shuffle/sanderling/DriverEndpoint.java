package org.apache.spark.shuffle.sanderling;

import java.util.Map;
import org.apache.spark.rpc.IsolatedThreadSafeRpcEndpoint;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEnv;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/**
 * Answers executors on the driver: where the application's outputs are, and that lost ones are
 * forgotten. It has a thread of its own, because it waits for the store.
 */
final class DriverEndpoint implements IsolatedThreadSafeRpcEndpoint {
    static final String NAME = "sanderling-shuffle";

    /** Requests where the application's outputs are. */
    static final String LOCATE = "sanderling: where?";

    private final RpcEnv rpcEnv;
    private final Driver driver;

    DriverEndpoint(RpcEnv rpcEnv, Driver driver) {
        this.rpcEnv = rpcEnv;
        this.driver = driver;
    }

    @Override
    public RpcEnv rpcEnv() {
        return rpcEnv;
    }

    @Override
    public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
        return new AbstractPartialFunction<Object, BoxedUnit>() {
            @Override
            public boolean isDefinedAt(Object message) {
                return LOCATE.equals(message) || message instanceof Map;
            }

            @Override
            public BoxedUnit apply(Object message) {
                try {
                    context.reply(answer(message));
                } catch (Exception error) {
                    context.sendFailure(error);
                }
                return BoxedUnit.UNIT;
            }
        };
    }

    private Object answer(Object message) throws Exception {
        if (message instanceof Map && LostMaps.isOne((Map<?, ?>) message)) {
            driver.forget(new LostMaps((Map<?, ?>) message));
            return Boolean.TRUE;
        }
        return driver.application().message();
    }
}
