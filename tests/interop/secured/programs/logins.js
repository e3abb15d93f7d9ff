// node logins.js: logs in once for each line of JSON on stdin, and prints a line of JSON.
"use strict";
const fs = require("fs");
const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");

async function token(values) {
  const prefix = "sasl.oauthbearer.";
  const user = values[`${prefix}client.credentials.client.id`];
  const secret = values[`${prefix}client.credentials.client.secret`];
  const answer = await fetch(values[`${prefix}token.endpoint.url`], {
    method: "POST",
    headers: { Authorization: "Basic " + Buffer.from(`${user}:${secret}`).toString("base64") },
    body: "grant_type=client_credentials",
  });
  return { value: (await answer.json()).access_token };
}

function settings(values) {
  const found = {
    clientId: "kafkajs",
    brokers: [values["bootstrap.servers"]],
    logLevel: logLevel.NOTHING,
    connectionTimeout: 6000,
    authenticationTimeout: 6000,
    retry: { retries: 0 },
  };
  if (values["ssl.ca.location"]) {
    found.ssl = { ca: [fs.readFileSync(values["ssl.ca.location"])] };
    if (values["ssl.keystore.location"]) {
      found.ssl.cert = found.ssl.key = fs.readFileSync(values["ssl.keystore.location"]);
      found.ssl.passphrase = values["ssl.key.password"];
    }
  }
  const mechanism = values["sasl.mechanism"];
  if (mechanism === "OAUTHBEARER") {
    found.sasl = { mechanism: "oauthbearer", oauthBearerProvider: () => token(values) };
  } else if (mechanism) {
    const [username, password] = [values["sasl.username"], values["sasl.password"]];
    found.sasl = { mechanism: mechanism.toLowerCase(), username, password };
  }
  return found;
}

async function logIn(values) {
  const admin = new Kafka(settings(values)).admin();
  try {
    await admin.connect();
    await admin.describeCluster();
    return "in";
  } catch (error) {
    return `${error.name}: ${error.message}`.replaceAll("\n", " ");
  } finally {
    await admin.disconnect().catch(() => {});
  }
}

(async () => {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    console.log(JSON.stringify(await logIn(JSON.parse(line))));
  }
  process.exit(0);
})();
