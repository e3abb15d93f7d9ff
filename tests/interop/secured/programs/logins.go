// Logs in with franz-go once for each line of JSON on stdin, and prints a line of JSON.
package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const patience = 6 * time.Second

type values map[string]string

func token(ctx context.Context, of values) (oauth.Auth, error) {
	prefix := "sasl.oauthbearer."
	url := of[prefix+"token.endpoint.url"]
	body := strings.NewReader("grant_type=client_credentials")
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, body)
	if err != nil {
		return oauth.Auth{}, err
	}
	login := of[prefix+"client.credentials.client.id"] + ":" + of[prefix+"client.credentials.client.secret"]
	request.Header.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(login)))
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return oauth.Auth{}, err
	}
	defer answer.Body.Close()
	var found struct {
		AccessToken string `json:"access_token"`
	}
	err = json.NewDecoder(answer.Body).Decode(&found)
	return oauth.Auth{Token: found.AccessToken}, err
}

func encryption(of values) (*tls.Config, error) {
	ca, err := os.ReadFile(of["ssl.ca.location"])
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: x509.NewCertPool()}
	config.RootCAs.AppendCertsFromPEM(ca)
	if pem := of["ssl.keystore.location"]; pem != "" {
		pair, err := tls.LoadX509KeyPair(pem, pem)
		if err != nil {
			return nil, err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

func logIn(of values) (string, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(of["bootstrap.servers"]), kgo.RequestRetries(0), kgo.DialTimeout(patience),
	}
	if of["ssl.ca.location"] != "" {
		config, err := encryption(of)
		if err != nil {
			return "", err
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	user, password := of["sasl.username"], of["sasl.password"]
	switch of["sasl.mechanism"] {
	case "PLAIN":
		options = append(options, kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()))
	case "SCRAM-SHA-256":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()))
	case "SCRAM-SHA-512":
		options = append(options, kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()))
	case "OAUTHBEARER":
		options = append(options, kgo.SASL(oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			return token(ctx, of)
		})))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err = kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	return "in", err
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var of values
		if err := json.Unmarshal(lines.Bytes(), &of); err != nil {
			panic(err)
		}
		said, err := logIn(of)
		if err != nil {
			said = fmt.Sprintf("error: %v", err)
		}
		line, _ := json.Marshal(strings.ReplaceAll(said, "\n", " "))
		fmt.Println(string(line))
	}
}
